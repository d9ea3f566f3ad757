"""One writer a name in this process, and the book as it left it.

Threads and tasks of one process that want the same name would only spoil each other's transactions: they take turns. And
if nobody of another process has come since our last write, the book need not be read again; if somebody has, the
transaction fails, as any that is based on an old book, and it is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...drivers.base import Driver
from ...errors import Unavailable
from ..turns import Turns
from .book import Book

T = TypeVar("T")
_MOST = 1024


class Desk:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._turns: dict[str, Turns] = {}
        self._books: dict[str, Book] = {}
        self._shared: dict[str, None] = {}  # names in whose book we saw other sessions: better read than guessed

    async def at(self, name: str, deadline: float, work: Callable[[], Awaitable[T]]) -> T:
        turns = self._turns.setdefault(name, Turns(self._driver.bell, self._driver.me))
        turn = turns.turn()
        try:
            if not await turn.come(deadline):
                raise Unavailable(f"others of this process who ask Consul for {name!r} were before this one")
            return await work()
        finally:
            turn.over()
            # (Who comes between these two gets a turn that nobody else heeds; Consul keeps them apart all the same.)
            if not turns and self._turns.get(name) is turns:
                self._turns.pop(name, None)

    def take(self, name: str) -> Book | None:
        """The book as we left it, to write in; None: read it. A name of which we know nothing is taken to be free."""
        book = self._books.pop(name, None)
        if book is None and name not in self._shared:
            book = Book()
        if book is not None:
            book.known = True
        return book

    def put(self, name: str, book: Book, session: str) -> None:
        book.known = False
        if not book.empty and book.keeper != session:  # a session keeps the key of a book that is all its own
            if len(self._shared) >= _MOST:
                self._shared.clear()
            self._shared[name] = None
            return
        self._shared.pop(name, None)
        if not book.empty:
            if len(self._books) >= _MOST:
                self._books.clear()
            self._books[name] = book

"""Scripts, run by the Lua 5.1 that Redis has too, with what Redis gives them: redis.call, cmsgpack, struct.

One runtime serves all simulated servers of this Python process: a script keeps nothing from one run to the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .....errors import NotInstalled
from .keyspace import Refused, Status
from .packing import BadFormat, pack_one, struct_pack, struct_unpack, unpack_all, unpack_known

Call = Callable[[Sequence[bytes]], Any]

_RUNNER = """
return function(script, keys, ...)
    KEYS, ARGV = {unpack({...}, 1, keys)}, {select(keys + 1, ...)}
    return script()
end"""
_MANY = 1000  # so many arguments a function of Lua's is not called with


class Lua:
    def __init__(self) -> None:
        try:
            from lupa.lua51 import LuaError, LuaRuntime, lua_type
        except ImportError as error:
            raise NotInstalled(
                "a simulated Redis runs Lua by the package lupa: pip install 'holdfast[testing]'"
            ) from error
        self._error, self._type = LuaError, lua_type
        self._lua = lua = LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._call: Call = lambda _: None
        self._compiled: dict[bytes, Any] = {}
        self._runner = lua.execute(_RUNNER.encode())
        self._status = lua.eval(b"function(text) return {ok = text} end")
        self._failure = lua.eval(b"function(text) return {err = text} end")
        self._few = lua.eval(b"function(...) return {...} end")  # a fifth of what table_from costs
        names = lua.globals()
        for table, functions in {
            b"redis": {
                b"call": self._called,
                b"pcall": self._called_safely,
                b"sha1hex": lambda text: hashlib.sha1(text, usedforsecurity=False).hexdigest().encode(),
            },
            b"cmsgpack": {b"pack": self._pack, b"unpack": self._unpack, b"unpack_one": self._unpack_one},
            b"struct": {b"pack": struct_pack, b"unpack": struct_unpack},
        }.items():
            names[table] = lua.table_from(functions)

    def compile(self, sha: bytes, text: bytes) -> None:
        if sha not in self._compiled:
            try:
                self._compiled[sha] = self._lua.compile(text, name=b"@user_script")
            except self._error as error:
                raise Refused(f"ERR Error compiling script (new function): {error}") from None

    def run(self, sha: bytes, keys: Sequence[bytes], arguments: Sequence[bytes], call: Call) -> Any:
        """The answer, as a client is told. `call` does what the script asks for."""
        before, self._call = self._call, call
        try:
            return self._answer(self._runner(self._compiled[sha], len(keys), *keys, *arguments))
        except (self._error, BadFormat) as error:
            raise Refused(f"ERR {error} script: {sha.decode()}, on @user_script") from None
        finally:
            self._call = before

    # ---- what scripts call

    def _called(self, *words: Any) -> Any:
        answer = self._call([word if type(word) is bytes else _word(word) for word in words])
        return answer if type(answer) is bytes or type(answer) is int else self._given(answer)

    def _called_safely(self, *words: Any) -> Any:
        try:
            return self._called(*words)
        except Refused as refused:
            return self._failure(str(refused).encode())

    def _pack(self, *values: Any) -> bytes:
        return b"".join([pack_one(value, _listed) for value in values])

    def _unpack(self, data: bytes) -> Any:
        return tuple([self._tabled(value) if type(value) is list else value for value in unpack_all(data)])

    def _unpack_one(self, data: bytes, offset: float = 0) -> Any:
        if not 0 <= offset <= len(data):
            raise BadFormat(f"Start offset {offset} greater than input length {len(data)}.")
        if offset == len(data):
            return -1
        value, at = unpack_known(data, int(offset))
        return -1 if at == len(data) else at, self._tabled(value)

    # ---- between Lua and Python

    def _table(self, values: list[Any]) -> Any:
        return self._few(*values) if len(values) < _MANY else self._lua.table_from(values)

    def _tabled(self, value: Any) -> Any:
        if type(value) is not list:
            return value
        return self._table([self._tabled(one) if type(one) is list else one for one in value])

    def _given(self, answer: Any) -> Any:
        """An answer of the server's, as a script sees it."""
        if answer is None:
            return False
        if type(answer) is list:
            return self._table([one if type(one) is bytes else self._given(one) for one in answer])
        return self._status(answer.text) if type(answer) is Status else answer

    def _answer(self, value: Any) -> Any:
        """What a script returned, as a client sees it."""
        kind = type(value)
        if kind is bytes or kind is int:
            return value
        if kind is bool or value is None:
            return 1 if value else None
        if kind is float:
            return int(value) if abs(value) < 1 << 63 else -(1 << 63)  # as C's casts do here
        if kind is tuple:  # it returned several values: the first counts
            return self._answer(value[0])
        if self._type(value) != "table":
            return None
        for key in (b"err", b"ok"):
            told = value[key]
            if told is not None:
                if key == b"err":
                    raise Refused(told.decode())
                return Status(told)
        answers, at = [], 1
        while (one := value[at]) is not None:
            answers.append(self._answer(one))
            at += 1
        return answers


def _listed(table: Any) -> list[Any]:
    return list(table.values())


def _word(value: Any) -> bytes:
    if type(value) is int:
        return b"%d" % value if abs(value) < 10**17 else b"%.17g" % value
    if type(value) is float:
        return b"%.17g" % value
    raise Refused("ERR Lua redis lib command arguments must be strings or integers")


@cache
def lua() -> Lua:
    return Lua()

"""The three acts. Each lets four processes deposit into one account, and counts what became of it."""

from __future__ import annotations

from typing import NamedTuple

from ... import connect
from .bank import DEPOSIT, FENCE, Account
from .cast import TTL, Actor, Failed, first_answer
from .stage import Stage, columns

_ROUNDS = 3


class Outcome(NamedTuple):
    """An act, in numbers. `expected` is what all the deposits that were acknowledged come to."""

    title: str
    expected: int
    actual: int
    refused: int | None  # None: nobody looked

    @property
    def lost(self) -> int:
        return self.expected - self.actual


class Director:
    def __init__(self, stage: Stage, actors: list[Actor], bank: str, url: str) -> None:
        self._stage = stage
        self._actors = actors
        self._bank = bank
        self._locks = connect(url, label="director")
        self._account = Account(bank, "act 1")
        self._acknowledged = 0
        self._refused = 0
        self._fenced = False

    def close(self) -> None:
        self._account.close()
        self._locks.close()

    # ---- the acts

    def without(self) -> Outcome:
        self._open("act 1", "Act 1 of 3: no lock", fenced=False)
        stage = self._stage
        for number in range(1, _ROUNDS + 1):
            for one in self._actors:
                self._ask(one, "read")
            stage.tell(f"Round {number}: all four have read {self._account.read()}, and each adds {DEPOSIT} to that.")
            stage.beat(0.35)
            for one in self._actors:
                self._ask(one, "write")
            stage.tell(
                f"All four have written. Four deposits of {DEPOSIT}, and the balance is {self._account.read()}.", "red"
            )
            stage.beat(0.35)
        return self._close("no lock", refused=None)

    def locked(self) -> Outcome:
        self._open("act 2", "Act 2 of 3: a lock, and a holder that falls asleep", fenced=False)
        self._in_turn()
        self._paused()
        return self._close("a lock", refused=None)

    def fenced(self) -> Outcome:
        self._open("act 3", "Act 3 of 3: the same lock, and storage that looks at its token", fenced=True)
        self._stage.tell("Every read and every write now begins with this, in the same transaction:")
        for line in FENCE.strip().splitlines():
            self._stage.tell(f"    {line}", "cyan")
        self._stage.tell("    no row changed: StaleToken, ROLLBACK", "cyan")
        self._stage.beat(1.5)
        self._in_turn()
        self._paused()
        return self._close("a lock, its token enforced", refused=self._refused)

    def _in_turn(self) -> None:
        for one in self._actors:
            self._ask(one, "acquire")
            self._deposit(one)
            self._stage.beat(0.05)
        self._stage.tell(f"In turn, under the lock, all is well: the balance is {self._account.read()}.", "green")
        self._stage.beat(0.35)

    def _paused(self) -> None:
        stage = self._stage
        sleeper, *others = self._actors
        self._ask(sleeper, "acquire")
        self._ask(sleeper, "read")
        self._ask(sleeper, "check")
        sleeper.pause()
        sleeper.doing = "PAUSED, about to write"
        stage.tell(
            f"{sleeper.name} took the lock, read the balance, made sure of its lock, and was paused: SIGSTOP.", "yellow"
        )
        sleeper.tell("write")  # what it was about to do next: waits for it in the pipe
        for one in others:
            one.tell("acquire")
            one.doing = "in line"
        waiting = list(others)
        while waiting:  # they raced to the line, so in whichever order
            one, answer = first_answer(waiting, self._draw)
            self._heard(one, answer)
            if len(waiting) == len(others):
                stage.tell(
                    f"After {TTL:g} s without renewal the lock went to {one.name}, as it must: {sleeper.name} might be dead."
                )
            waiting.remove(one)
            self._deposit(one)
            stage.beat(0.15)
        stage.beat(0.2)
        stage.tell(
            f"The others have deposited: {self._account.read()}. Now {sleeper.name} wakes up (SIGCONT), and writes.",
            "yellow",
        )
        stage.beat(0.5)
        sleeper.resume()
        answer = sleeper.answer(self._draw)
        self._heard(sleeper, answer)
        if answer[0] == "wrote":
            stage.tell(f"{sleeper.name} wrote {answer[1]}: what it had read before its sleep, plus {DEPOSIT}.", "red")
            self._ask(sleeper, "release")
        else:
            stage.tell(f"Refused: StaleToken. The account has seen a newer token than {sleeper.name}'s.", "green")
            stage.beat(0.5)
            self._ask(sleeper, "release")
            self._ask(sleeper, "acquire")
            self._deposit(sleeper)
            stage.tell(
                f"So {sleeper.name} took the lock again, read again, and deposited: {self._account.read()}.", "green"
            )
        stage.beat(0.5)

    # ---- what they are made of

    def _open(self, account: str, title: str, *, fenced: bool) -> None:
        self._account.close()
        self._account = Account(self._bank, account)
        self._acknowledged = self._refused = 0
        self._fenced = fenced
        self._stage.act(title)
        for one in self._actors:
            one.tell(f"open {account.replace(' ', '_')} {'fenced' if fenced else 'open'}")
        for one in self._actors:
            one.answer(self._draw)
            one.doing = ""

    def _deposit(self, one: Actor) -> None:
        for word in ("read", "write", "release"):
            self._ask(one, word)

    def _ask(self, one: Actor, word: str) -> None:
        one.tell(word)
        self._heard(one, one.answer(self._draw))

    def _heard(self, one: Actor, answer: list[str]) -> None:
        word, value = answer[0], answer[1] if len(answer) > 1 else ""
        if word == "wrote":
            self._acknowledged += 1
        elif word == "refused":
            self._refused += 1
        elif word == "read" and not value.isdigit():
            raise Failed(f"worker {one.name} said {answer}")
        said = {"holds": f"holds the lock, token {value}", "read": f"read {value}", "wrote": f"wrote {value}"}
        said |= {"refused": "refused: StaleToken", "lost": f"{one.doing}, and finds its lock gone"}
        one.doing = said.get(word, one.doing)
        self._draw()

    def _draw(self) -> None:
        if not self._stage.live:
            return
        paint = self._stage.paint
        picture = []
        for one in self._actors:
            style = "yellow" if one.paused else "red" if one.doing.startswith("refused") else "dim"
            style = "green" if one.doing.startswith("holds") else style
            mark = "‖" if one.paused else "▶" if one.doing.startswith(("holds", "read")) else "·"
            picture.append(f"   {paint('bold', one.name)} {paint(style, f'{mark} {one.doing}')}")
        picture.append("")
        holders = self._locks.inspect(self._account.name).holders
        left = holders[0].left if holders else 0.0
        owner = holders[0].owner.rpartition("/")[2] if holders else ""
        inside = (
            f"{paint.bar(left / TTL, 20)} held by {owner}, {max(left, 0):.1f} s left"
            if holders
            else paint("dim", "free")
        )
        if self._account.name != "act 1":
            picture.append(columns(("   lock", 13)) + inside)
        balance, expected = self._account.read(), self._acknowledged * DEPOSIT
        verdict = paint("red", f"{expected - balance} lost") if expected != balance else paint("green", "right")
        picture.append(
            columns(("   balance", 13)) + f"{paint('bold', str(balance))} of {expected} deposited: {verdict}"
        )
        self._stage.draw(picture)

    def _close(self, title: str, refused: int | None) -> Outcome:
        outcome = Outcome(title, self._acknowledged * DEPOSIT, self._account.read(), refused)
        paint = self._stage.paint
        lost = paint("red", f"{outcome.lost} lost") if outcome.lost else paint("green", "nothing lost")
        self._stage.end_act(f"  Deposited {outcome.expected}, balance {outcome.actual}: {lost}.")
        return outcome

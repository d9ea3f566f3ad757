"""What can be typed. One table a command, and one loop that reads words by it.

By hand, because `holdfast run` would miss its bar with argparse: `run x -- true` may take 3 times as long as `python -c "import
sqlite3"`. By hand it takes 2.9 times that, with argparse, imported for it alone, 3.2 (medians of 60 in turns, on a busy machine);
and argparse takes options that belong to the command after NAME for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..claim import MAX_TOKEN

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Usage(Exception):
    """What was typed makes no sense; the message says what would."""

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        self.command = command


class Options:
    """What was typed, understood."""

    def __init__(self) -> None:
        self.command = ""
        self.name = ""
        self.named = False  # an empty name, from a variable that was not set, is a name all the same: a bad one
        self.argv: list[str] = []
        self._values: dict[str, Any] = {}

    def call(self, name: str) -> None:
        self.name, self.named = name, True

    def flag(self, key: str) -> bool:
        return bool(self._values.get(key))

    def get(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        self._values[key] = value


def _seconds(word: str) -> float:
    """Seconds, or with a unit as sleep(1) takes them: 0.5, 30, 30s, 5m, 2h, 1d."""
    number, factor = (word[:-1], UNITS[word[-1]]) if word and word[-1] in UNITS else (word, 1.0)
    try:
        value = float(number) * factor
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise Usage(f"wants a number of seconds, or one like 5m or 2h, not {word!r}")
    return value


def _whole(least: int, most: int, what: str) -> Callable[[str], int]:
    def read(word: str) -> int:
        if not (word.isascii() and word.isdigit() and least <= int(word) <= most):
            raise Usage(f"wants {what}, not {word!r}")
        return int(word)

    return read


# An option is (key, how to read its value); with None for the latter it takes no value.
Spec = dict[str, tuple[str, Callable[[str], object] | None]]

EVERYWHERE: Spec = {
    "--url": ("url", str),
    "--url-file": ("url_file", str),
    "--json": ("json", None),
    "-h": ("help", None),
    "--help": ("help", None),
}

RUN: Spec = {
    "-n": ("now", None),
    "--no-wait": ("now", None),
    "-w": ("wait", _seconds),
    "--wait": ("wait", _seconds),
    "-E": ("code", _whole(0, 255, "an exit code from 0 to 255")),
    "--conflict-exit-code": ("code", _whole(0, 255, "an exit code from 0 to 255")),
    "-q": ("quiet", None),
    "--quiet": ("quiet", None),
    "--ttl": ("ttl", _seconds),
    "--shared": ("shared", None),
    "--exclusive": ("exclusive", None),
    "--slots": ("slots", _whole(1, 2**31 - 2, "how many may be inside at once")),
    "--at-least": ("at_least", _seconds),
    "--label": ("label", str),
    "--pass-url": ("pass_url", None),
}

RELEASE: Spec = {
    "--token": ("token", _whole(1, MAX_TOKEN, "the token of a grant, as `holdfast show` prints it")),
    "-y": ("yes", None),
    "--yes": ("yes", None),
}

FENCE: Spec = {
    "--table": ("table", str),
    "--column": ("column", str),
    "--dialect": ("dialect", str),
    "--add-column": ("add_column", None),
    "--apply": ("apply", None),
    "--database": ("database", str),
    "--database-file": ("database_file", str),
}

ADVISE: Spec = {  # the answers are looked at by the tree, which need not be imported for every command
    **{
        f"--{key}": (key, str)
        for key in (
            "idempotent",
            "conflicts",
            "storage-check",
            "shard",
            "history",
            "one-process",
            "goal",
            "ttl-predictable",
            "store",
            "graph",
            "have",
            "need",
            "machines",
            "data",
        )
    },
    "--code": ("code", None),
    "--from": ("from", str),
    "--ttl": ("ttl", _seconds),
}
WATCH: Spec = {"--interval": ("interval", _seconds), "--for": ("for", _seconds)}
DASHBOARD: Spec = {
    "--also": ("also", str),
    "--listen": ("listen", str),
    "--token": ("token", str),
    "--token-file": ("token_file", str),
    "--allow-evict": ("allow_evict", None),
    "--history": ("history", str),
    "--interval": ("interval", _seconds),
}
TOP: Spec = {"--also": ("also", str), "--interval": ("interval", _seconds)}
LAB: Spec = {"--listen": ("listen", str), "--record": ("record", str)}
REPEATED = ("--also",)
SEVERAL = ("dashboard", "top")  # commands for which a second --url is one more store
MIGRATE: Spec = {"--sql": ("sql", None), "--acl": ("acl", None)}

VERIFY: Spec = {
    "--own": ("own", str),
    "--seconds": ("seconds", _seconds),
    "--seed": ("seed", _whole(0, 2**53, "a whole number")),
    "--workers": ("workers", _whole(2, 64, "2 to 64 workers")),
    "--faults": ("faults", str),
    "--register": ("register", str),
    "--library": ("library", str),
    "--ttl": ("ttl", _seconds),
    "--no-fence": ("no_fence", None),
    "--keep": ("keep", str),
    "--check": ("check", str),
    "--report": ("report", str),
}

SIMULATE: Spec = {
    "--seeds": ("seeds", _whole(1, 10**9, "how many seeds")),
    "--seed": ("seed", _whole(0, 2**53, "a whole number")),
    "--first": ("first", _whole(0, 2**53, "a whole number")),
    "--seconds": ("seconds", _seconds),
    "--faults": ("faults", str),
    "--count": ("count", str),
    "--html": ("html", str),
}

LS: Spec = {"--older-than": ("older_than", _seconds), "--watch": ("watch", None), **WATCH}

COMMANDS: dict[str, Spec] = {
    "run": RUN,
    "ls": LS,
    "show": {},
    "why": {},
    "release": RELEASE,
    "demo": {},
    "docs": {},
    "fence": FENCE,
    "advise": ADVISE,
    "migrate": MIGRATE,
    "observe": {},
    "watch": WATCH,
    "doctor": {},
    "verify": VERIFY,
    "simulate": SIMULATE,
    "completion": {},
    "help": {},
    "version": {},
    "dashboard": DASHBOARD,
    "top": TOP,
    "lab": LAB,
}
SHELLS = ("bash", "zsh", "fish")
NAMELESS = ("demo", "migrate", "version", "lab")


def parse(words: Sequence[str]) -> Options:
    options = Options()
    try:
        _read(list(words), options)
        if not options.flag("help"):
            _check(options)
    except Usage as error:
        error.command = options.command
        raise
    return options


def _read(words: list[str], options: Options) -> None:
    spec = {**EVERYWHERE, "--version": ("version", None), "-V": ("version", None)}
    while words:
        word = words.pop(0)
        if word == "--":
            _rest(words, options)
            return
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            _take(spec, flag, value if equals else None, words, options)
        elif word.startswith("-") and word != "-":
            _cluster(spec, word, words, options)
        elif not options.command:
            if word not in COMMANDS:
                raise Usage(f"there is no command {word!r}{_like(word, COMMANDS)}")
            options.command = word
            spec = {**EVERYWHERE, **COMMANDS[word]}
        elif not options.named and options.command not in NAMELESS:
            options.call(word)
        elif options.command == "advise" and options.get("lock") is None:
            options.put("lock", word)
        else:  # from its first word on, all that follows is the command's own
            _rest([word, *words], options)
            return


def _rest(words: list[str], options: Options) -> None:
    if options.command == "run" and options.named:
        options.argv = words
        return
    if options.command and options.command not in NAMELESS and not options.named and words:
        if options.command == "run" and not words[0].startswith(
            "-"
        ):  # what follows the first -- is the command already
            raise Usage(f"which lock? Its NAME is missing, as in: holdfast run NAME -- {' '.join(words)}")
        options.call(words.pop(0))  # a name that begins with -
    if words and options.command == "run":
        _rest(words[words[0] == "--" :], options)
    elif words:
        raise Usage(f"too many words: {' '.join(words)!r}")


def _cluster(spec: Spec, word: str, words: list[str], options: Options) -> None:
    """-nq is -n -q, and -w5 is -w 5, as everywhere."""
    flag, rest = word[:2], word[2:]
    if flag in spec and spec[flag][1] is None:
        _take(spec, flag, None, words, options)
        if rest:
            _cluster(spec, f"-{rest}", words, options)
    else:
        _take(spec, flag, rest or None, words, options)


def _take(spec: Spec, flag: str, value: str | None, words: list[str], options: Options) -> None:
    if flag not in spec:
        raise Usage(f"there is no option {flag}{_like(flag, spec)}")
    key, read = spec[flag]
    if read is None:
        if value is not None:
            raise Usage(f"{flag} takes no value")
        options.put(key, True)
        return
    if value is None:
        if not words:
            raise Usage(f"{flag} needs a value")
        value = words.pop(0)
    if flag == "--url" and options.command in SEVERAL and options.get("url") is not None:
        flag, key = "--also", "also"
    try:
        options.put(key, [*options.get(key, []), value] if flag in REPEATED else read(value))
    except Usage as error:
        raise Usage(f"{flag} {error}") from None


def _check(options: Options) -> None:
    if options.command in ("run", "show", "why", "release") and not options.named:
        raise Usage("which lock? Its NAME is missing")
    if options.command == "ls" and not options.flag("watch"):
        for key in ("interval", "for"):
            if options.get(key) is not None:
                raise Usage(f"--{key} goes with --watch")
    if options.command == "advise" and options.named:
        _check_advice(options)
    if options.command == "fence" and not options.name:
        raise Usage("what is to be done? Say `fence install`, `fence remove` or `fence table`")
    if options.command == "release" and options.get("token") is None:
        raise Usage("which grant? Say --token T, as `holdfast show NAME` prints it: only that one will be released")
    if options.command in ("doctor", "dashboard", "verify") and options.named:
        if options.get("url") is not None:
            raise Usage("which store? It is named twice, with --url too")
        options.put("url", options.name)
    if options.command == "verify":
        stores = [flag for flag in ("url", "url_file", "own", "check") if options.get(flag) is not None]
        if len(stores) > 1:
            raise Usage("a URL, --own and --check name what to look at: say one of them")
    if options.command == "completion" and options.name not in SHELLS:
        raise Usage(f"for which shell? There are: {', '.join(SHELLS)}")
    if options.command == "help" and options.named and options.name not in COMMANDS:
        raise Usage(f"there is no command {options.name!r}{_like(options.name, COMMANDS)}")
    if options.command != "run":
        return
    if options.flag("json"):
        raise Usage("what is printed is the command's own: there is nothing to print as JSON")
    if not options.argv:
        raise Usage("which command? Write it after --, as in: holdfast run NAME -- cmd arg")
    if options.flag("now") and options.get("wait") is not None:
        raise Usage("-n does not wait and -w waits: say one of them")
    if sum((options.flag("shared"), options.flag("exclusive"), options.get("slots") is not None)) > 1:
        raise Usage("--shared, --exclusive and --slots are three kinds of lock: say one of them, or none for a mutex")


def _check_advice(options: Options) -> None:
    if options.name == "store":
        if options.get("lock") is not None:
            raise Usage(f"`advise store` takes no name: {options.get('lock')!r}")
        return
    if options.name != "ttl":
        raise Usage(f"advise what? Say `advise` alone, `advise store`, or `advise ttl NAME`, not {options.name!r}")
    if options.get("lock") is None:
        raise Usage("which lock? Its NAME is missing, as in: holdfast advise ttl NAME --from http://host:9464/metrics")
    if options.get("from") is None:
        raise Usage("from what? Say --from URL, of an exporter of Prometheus, or --from FILE, with a history")


# flock's, consul's and our own in Python.
_OTHER_WORDS = {
    "timeout": "--wait",
    "t": "--wait",
    "nonblock": "--no-wait",
    "nb": "--no-wait",
    "expire": "--ttl",
    "lease": "--ttl",
    "s": "--shared",
    "x": "--exclusive",
}


def _like(word: str, known: dict[str, Any]) -> str:
    from difflib import get_close_matches

    if (here := _OTHER_WORDS.get(word.lstrip("-"))) in known:
        return f"; here that is {here}"
    bare = {one.lstrip("-"): one for one in known}  # all options begin alike, which makes none of them likely
    found = get_close_matches(word.lstrip("-"), bare, n=1, cutoff=0.6)
    return f"; did you mean {bare[found[0]]}?" if found else f" (there are: {', '.join(known)})"

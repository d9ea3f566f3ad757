"""A lock as a decorator: which name a call locks, and how the function gets its lease. Knows nothing of threads or asyncio.

The name is a template if it has braces, as in `"invoice:{invoice_id}"`: looked at when the function is decorated, filled in
with the arguments of each call.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .claim import valid_name
from .errors import Misuse

if TYPE_CHECKING:
    from inspect import Signature

_HERE = os.path.dirname(__file__) + os.sep
wraps = functools.wraps
Key = Callable[..., str]


class Unnameable(Misuse):
    """What a call was given makes no name of a lock: empty, too long, no text. In a service, a stranger may have sent it."""


class Call(NamedTuple):
    """What to do at every call of one decorated function."""

    name: Callable[[tuple[Any, ...], dict[str, Any]], str]
    first: bool  # the lease goes before the arguments
    keyword: bool  # the lease goes by the name `lease`
    signature: Signature  # of the result: without the lease

    def dress(self, guarded: Any) -> None:
        """Frameworks that look at the result shall not ask anybody for a lease."""
        if self.first or self.keyword:
            guarded.__signature__ = self.signature

    def with_lease(self, lease: object, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.first:
            return (lease, *args), kwargs
        return args, {**kwargs, "lease": lease} if self.keyword else kwargs


_SENT = ("apply_async", "delay", "send_with_options")  # what Celery, RQ and Dramatiq add to a function


def plan(function: Callable[..., Any], name: str, key: Key | None, *, asynchronous: bool) -> Call:
    """Refuse what cannot be guarded, or a name that could not be filled in, before anything is ever called."""
    import inspect  # late: it would double the time that `import holdfast` takes

    if isinstance(function, (classmethod, staticmethod, property)):
        kind = type(function).__name__
        raise Misuse(f"a {kind} cannot be put under a lock: write @{kind} above the lock, and the lock next to `def`")
    if isinstance(function, type):
        raise Misuse(f"{function!r} is a class: decorate its methods, or use `with` where one is made")
    if any(hasattr(function, how) for how in _SENT) and not hasattr(function, "whatever_a_mock_has"):
        raise Misuse(
            f"{function!r} is a task already, and its workers would run it without the lock: write the lock next to `def`, "
            "below what makes it a task"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Misuse(f"{function!r} is a generator, which runs after the call returned: use `with` inside it")
    if inspect.iscoroutinefunction(function) is not asynchronous:
        other = "holdfast.connect()" if asynchronous else "holdfast.aio.connect()"
        raise Misuse(f"{function!r} is {'not ' * asynchronous}asynchronous: decorate it with a lock from {other}")
    signature = inspect.signature(function)
    lease = signature.parameters.get("lease")
    if lease is None or lease.kind in (lease.VAR_POSITIONAL, lease.VAR_KEYWORD):
        return Call(_naming(function, name, key, signature), False, False, signature)
    first = lease.kind != lease.KEYWORD_ONLY and next(iter(signature.parameters)) == "lease"
    others = signature.replace(parameters=[one for one in signature.parameters.values() if one is not lease])
    return Call(_naming(function, name, key, others), first, not first, others)


def _naming(
    function: Callable[..., Any], name: str, key: Key | None, signature: Signature
) -> Callable[[tuple[Any, ...], dict[str, Any]], str]:
    if key is not None:
        made = key
        return lambda args, kwargs: made_name(made(*args, **kwargs))
    if not name:
        itself = valid_name(f"{function.__module__}.{function.__qualname__}")
        return lambda args, kwargs: itself
    if "{" not in name and "}" not in name:
        return lambda args, kwargs: name
    _check(name, function, signature)
    fill = filling(name)

    def filled_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return fill(bound.arguments)

    return filled_in


def filling(template: str) -> Callable[[Mapping[str, Any]], str]:
    """What makes names of it."""
    from string import Formatter

    fill: Callable[[Mapping[str, Any]], str] = template.format_map
    if any(spec and "{" in spec for _, _, spec, _ in Formatter().parse(template)):
        fill = _bounded(template)

    def filled_in(values: Mapping[str, Any]) -> str:
        try:
            name = fill(values)
        except ValueError as error:  # a number that is too long to be written down, a text where a number was meant
            raise Unnameable(f"the lock's name {template!r} cannot be filled in: {error!s:.200}") from None
        return made_name(name)

    return filled_in


def _bounded(template: str) -> Callable[[Mapping[str, Any]], str]:
    """A width that is itself filled in, as in `{n:{width}}`, may come from a stranger, who asks for a gigabyte."""
    import re
    from string import Formatter

    class Bounded(Formatter):
        def format_field(self, value: Any, format_spec: str) -> str:
            if re.search("[0-9]{4}", format_spec):
                raise ValueError(f"no name is as long as {format_spec!r:.40} asks for")
            return str(super().format_field(value, format_spec))

    return functools.partial(Bounded().vformat, template, ())


def made_name(name: object) -> str:
    """A name that was made of what a call was given, if a lock may be called that."""
    try:
        return valid_name(name)
    except Misuse as error:
        raise Unnameable(str(error)) from None


def _check(template: str, function: Callable[..., Any], signature: Signature) -> None:
    import re
    from string import Formatter

    known = ", ".join(signature.parameters) or "none"
    try:
        parts = list(Formatter().parse(template))
        fields = [field for _, field, _, _ in parts if field is not None]
        fields += [inner for _, _, spec, _ in parts if spec for _, inner, _, _ in Formatter().parse(spec) if inner]
    except ValueError as error:
        raise Misuse(
            f"the lock's name {template!r} cannot be filled in ({error}): a literal brace is written twice"
        ) from None
    for field in fields:
        if re.split(r"[.[]", field)[0] not in signature.parameters:
            raise Misuse(
                f"the lock's name {template!r} has {{{field}}}, but {function.__qualname__}() has no such parameter "
                f"(it has: {known}); a literal brace is written twice"
            )


def is_template(name: str) -> bool:
    """Does it look as if arguments were to be filled in? Braces may be there for other reasons: `{}`, `{7}`, `{user:7}`."""
    import re

    return re.search(r"(?<!\{)\{[^\W\d]\w*([.\[!][^{}:]*)?\}(?!\})", name) is not None


def warn_as_it_is() -> None:
    """Taken by `with` or `acquire()`, it is one lock for all: safe, but hardly what was meant.

    The name is not told: Python remembers every text that it warned with, and names may come from strangers.
    """
    import warnings

    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        "a name like 'invoice:{id}' is taken as it is, braces included: only a decorated function fills it in. "
        "Here, write it as an f-string",
        stacklevel=level,
    )

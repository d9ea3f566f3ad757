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
from .packing import BadFormat, pack_list, pack_one, struct_pack, struct_unpack, unpack_all, unpack_one

Call = Callable[[Sequence[bytes]], Any]

# A list is answered as true, its length, and what is in it: a fifth of what it costs to take a table apart from outside.
_RUNNER = """
return function(script, keys, ...)
    KEYS, ARGV = {unpack({...}, 1, keys)}, {select(keys + 1, ...)}
    local answer = script()
    if type(answer) ~= 'table' or answer.err ~= nil or answer.ok ~= nil then return answer end
    local n = 0
    while answer[n + 1] ~= nil do n = n + 1 end
    if n >= 1000 then return answer end
    return true, n, unpack(answer, 1, n)
end"""
# What one script packed, others unpack again and again. Lua knows a string that it has seen without looking at it, so what was
# unpacked is kept here, and copied.
_CMSGPACK = """
local pack, pack_list, unpack_all, unpack_one = ...
local known, lists, count = {}, {}, 0

local function room()
    count = count + 1
    if count > 20000 then known, lists, count = {}, {}, 1 end
end

local function keep(data, ...)
    local n = select('#', ...)
    for i = 1, n do
        if type(select(i, ...)) == 'table' then return ... end
    end
    room()
    known[data] = {n + 1, ...}
    return ...
end

local function keep_list(data, offset, after, value)
    if type(value) ~= 'table' then return after, value end
    for i = 1, #value do
        local kind = type(value[i])
        if kind == 'table' or kind == 'nil' then return after, value end
    end
    room()
    lists[data] = lists[data] or {}
    lists[data][offset] = {after, unpack(value)}
    return after, value
end

return {
    pack = function(...)
        local value = ...
        if type(value) == 'table' and select('#', ...) == 1 then
            local n = 0
            while value[n + 1] ~= nil do n = n + 1 end
            if n > 0 and n < 1000 then return pack_list(unpack(value, 1, n)) end
        end
        return pack(...)
    end,
    unpack = function(data)
        local found = known[data]
        if found then return unpack(found, 2, found[1]) end
        return keep(data, unpack_all(data))
    end,
    unpack_one = function(data, offset)
        offset = offset or 0
        local found = lists[data] and lists[data][offset]
        if found then return found[1], {unpack(found, 2)} end
        return keep_list(data, offset, unpack_one(data, offset))
    end,
}"""
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
            b"struct": {b"pack": struct_pack, b"unpack": struct_unpack},
        }.items():
            names[table] = lua.table_from(functions)
        names[b"cmsgpack"] = lua.execute(
            _CMSGPACK.encode(), self._pack, self._pack_list, self._unpack, self._unpack_one
        )

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
        for word in words:
            if type(word) is not bytes:
                words = tuple([word if type(word) is bytes else _word(word) for word in words])
                break
        answer = self._call(words)
        kind = type(answer)
        return answer if kind is bytes or kind is int else self._given(answer)

    def _called_safely(self, *words: Any) -> Any:
        try:
            return self._called(*words)
        except Refused as refused:
            return self._failure(str(refused).encode())

    def _pack(self, *values: Any) -> bytes:
        return b"".join([pack_one(value, _listed) for value in values])

    def _pack_list(self, *values: Any) -> bytes:
        return pack_list(values, _listed)

    def _unpack(self, data: bytes) -> Any:
        return tuple([self._tabled(value) if type(value) is list else value for value in unpack_all(data)])

    def _unpack_one(self, data: bytes, offset: float = 0) -> Any:
        if not 0 <= offset <= len(data):
            raise BadFormat(f"Start offset {offset} greater than input length {len(data)}.")
        if offset == len(data):
            return -1
        value, at = unpack_one(data, int(offset))
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
            for one in answer:
                if type(one) is not bytes:
                    return self._table([one if type(one) is bytes else self._given(one) for one in answer])
            return self._table(answer)
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
        if kind is tuple:  # a list: see _RUNNER
            return [one if type(one) is int or type(one) is bytes else self._answer(one) for one in value[2:]]
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

"""`cmsgpack` and `struct`, as Redis gives them to scripts: numbers, strings, booleans and lists."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

_DOUBLE = struct.Struct(">d")
_SIZES = {"B": 1, "d": 8, "H": 2, "I": 4}


class BadFormat(Exception):
    """What a script's error says."""


# ---- cmsgpack


def pack_one(value: Any, listed: Callable[[Any], Sequence[Any]]) -> bytes:
    """`listed` takes a table apart; of tables, only lists are known here."""
    kind = type(value)
    if kind is bytes:
        return _pack_string(value)
    if kind is int:
        if 1 << 32 <= value < 1 << 63:
            return b"\xcf" + int.to_bytes(value, 8, "big")
        return _pack_whole(value) if -(1 << 63) <= value < 1 << 63 else _pack_double(float(value))
    if kind is bool:
        return b"\xc3" if value else b"\xc2"
    if value is None:
        return b"\xc0"
    if kind is float:
        return _pack_double(value)
    return pack_list(listed(value), listed)


def pack_list(values: Sequence[Any], listed: Callable[[Any], Sequence[Any]]) -> bytes:
    size = len(values)
    head = bytes((0x90 | size,)) if size < 16 else b"\xdc" + size.to_bytes(2, "big")
    return head + b"".join([pack_one(one, listed) for one in values])


def _pack_string(value: bytes) -> bytes:
    size = len(value)
    if size < 32:
        return bytes((0xA0 | size,)) + value
    if size < 1 << 8:
        return b"\xd9" + size.to_bytes(1, "big") + value
    if size < 1 << 16:
        return b"\xda" + size.to_bytes(2, "big") + value
    return b"\xdb" + size.to_bytes(4, "big") + value


def _pack_whole(value: int) -> bytes:
    if value >= 0:
        if value < 1 << 7:
            return bytes((value,))
        for code, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4)):
            if value < 1 << 8 * size:
                return bytes((code,)) + value.to_bytes(size, "big")
        return b"\xcf" + int.to_bytes(value, 8, "big")
    if value >= -32:
        return bytes((value & 0xFF,))
    for code, size in ((0xD0, 1), (0xD1, 2), (0xD2, 4)):
        if value >= -(1 << 8 * size - 1):
            return bytes((code,)) + value.to_bytes(size, "big", signed=True)
    return b"\xd3" + value.to_bytes(8, "big", signed=True)


def _pack_double(value: float) -> bytes:
    try:
        short = struct.pack(">f", value)
    except OverflowError:
        return b"\xcb" + _DOUBLE.pack(value)
    return b"\xca" + short if struct.unpack(">f", short)[0] == value else b"\xcb" + _DOUBLE.pack(value)


_UNSIGNED = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SIGNED = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_LONG = {0xD9: 1, 0xDA: 2, 0xDB: 4}


def unpack_one(data: bytes, at: int) -> tuple[Any, int]:
    """A value and where the next one begins; a list is a Python list."""
    if at >= len(data):
        raise BadFormat("Missing bytes in input.")
    code = data[at]
    at += 1
    if code < 0x80:
        return code, at
    if code >= 0xE0:
        return code - 0x100, at
    if code in _UNSIGNED or code in _SIGNED:
        size = _UNSIGNED.get(code) or _SIGNED[code]
        return int.from_bytes(_some(data, at, size), "big", signed=code in _SIGNED), at + size
    if 0xA0 <= code < 0xC0 or code in _LONG:
        size = code & 0x1F
        if code in _LONG:
            size, at = int.from_bytes(_some(data, at, _LONG[code]), "big"), at + _LONG[code]
        return _some(data, at, size), at + size
    if code in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[code], at
    if code == 0xCA:
        return struct.unpack(">f", _some(data, at, 4))[0], at + 4
    if code == 0xCB:
        return _DOUBLE.unpack(_some(data, at, 8))[0], at + 8
    if 0x90 <= code < 0xA0 or code == 0xDC:
        size = code & 0x0F
        if code == 0xDC:
            size, at = int.from_bytes(_some(data, at, 2), "big"), at + 2
        values = []
        for _ in range(size):
            value, at = unpack_one(data, at)
            values.append(value)
        return values, at
    raise BadFormat("Bad data format in input.")


def unpack_all(data: bytes) -> tuple[Any, ...]:
    values: list[Any] = []
    at, end = 0, len(data)
    while at < end:
        code = data[at]
        if code < 0x80:
            values.append(code)
            at += 1
        elif 0xA0 <= code < 0xC0 and at + code - 0xA0 < end:  # the commonest, without a call
            values.append(data[at + 1 : at + code - 0x9F])
            at += code - 0x9F
        elif code == 0xCF and at + 8 < end:
            values.append(int.from_bytes(data[at + 1 : at + 9], "big"))
            at += 9
        else:
            value, at = unpack_one(data, at)
            values.append(value)
    return tuple(values)


def _some(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise BadFormat("Missing bytes in input.")
    return data[at : at + size]


# ---- struct


def struct_pack(form: bytes, *values: Any) -> bytes:
    """Big-endian numbers, which scripts may pass as strings."""
    packed, kinds = _form(form)
    if len(kinds) > len(values):
        raise BadFormat("bad argument to 'pack' (number expected, got no value)")
    numbers = [float(value) for value, _ in zip(values, kinds, strict=False)]
    return packed.pack(
        *[
            number if kind == "d" else int(number) & ~(-1 << 8 * _SIZES[kind])
            for number, kind in zip(numbers, kinds, strict=True)
        ]
    )


def struct_unpack(form: bytes, data: bytes, at: int = 1) -> tuple[Any, ...]:
    """The numbers, and where the next one would begin; places count from 1."""
    packed, _ = _form(form)
    where = int(at) - 1
    if where + packed.size > len(data):
        raise BadFormat("data string too short")
    return (*packed.unpack_from(data, where), where + packed.size + 1)


@cache
def _form(form: bytes) -> tuple[struct.Struct, str]:
    text = form.decode()
    if text[:1] != ">" or any(kind not in _SIZES for kind in text[1:]):
        raise BadFormat(f"invalid format option in {text!r}: the simulated Redis knows > with {' '.join(_SIZES)}")
    return struct.Struct(text), text[1:]

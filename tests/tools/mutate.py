"""Damage for files: bytes anywhere, or one value in what the file says, which gets past the outer parser."""

import json
import math
import random
import struct
import tomllib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 255, 256, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e-300, 1e300,
    math.inf, -math.inf, math.nan, "", "none", "0", "-1", "35%", "150%", "nan", "a" * 1000, "../../x", "/dev/zero",
    "\x00", "[red]", "[/]", "[red]stop", "\x1b[31m\x1b]0;x\x07", "\u202e", "\udc80", "~nosuchuser/x", "x" * 5000,
    10**400, 1e-320, "λ", [], [[]], [0], ["x"], [1, 2], [1e9, 1e9], {}, {"": 0}, {"a": {"b": []}}, "F64", "I8", "BF16",
    "<b>a|b</b>", "=1+1", "\\\\input{x}", "e\u0301", "\uff0e\uff0e/x", "C64", "2000-01-01",
]  # fmt: skip
DIGITS = "5000 digits"
"""stands for a whole number that Python's own writers refuse"""
NUMBERS: list[Any] = [
    10**400, -(10**400), 10**18, 2**63, -(2**63), 10**9, 10**6, 80_000, 4096, 1600, 0, -1, 1e308, -1e308, 1e15, 1e-320,
    5e-324, -5e-324, math.nan, math.inf, -math.inf, 0.5, DIGITS,
]  # fmt: skip
SHAPES: list[list[int]] = [
    [1, 3, 1600, 1600], [80_000, 3, 5, 5], [1, 3, 8, 900_000], [2_600_000, 3, 1, 1], [1, 3, 1, 1], [1, 3, 8], [3, 8, 8],
    [1, 1, 8, 8], [64, 3, 128, 128], [1, 3, 2**31, 2**31], [2**62, 2**62, 2**62], [1], [0, 3, 8, 8],
]  # fmt: skip
Mutation = Callable[[bytes, random.Random], bytes]


def in_bytes(data: bytes, dice: random.Random) -> bytes:
    """A few of: bits flipped, numbers overwritten, spans cut, doubled or put in."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4, 16))):
        place = dice.randrange(len(changed) + 1) if dice.random() < 0.6 else dice.randrange(min(len(changed), 256) + 1)
        kind = dice.randrange(6)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << dice.randrange(8)
        elif kind == 1:
            size, sign = dice.choice(((1, "B"), (2, "H"), (4, "I"), (8, "Q")))
            value = dice.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), dice.randrange(2 ** (8 * size))))
            changed[place : place + size] = struct.pack(dice.choice("<>") + sign, value)
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            del changed[place : place + dice.choice((1, 4, 100, 5000))]
        elif kind == 4:
            changed[place:place] = changed[place : place + dice.choice((1, 8, 64, 4096))]
        elif kind == 5:
            changed[place:place] = dice.randbytes(dice.choice((1, 3, 16, 300)))
    return bytes(changed)


def in_tree(value: Any, dice: random.Random) -> Any:
    """The same lists, dicts and values but for one, which is odd, gone, renamed or nested very deep."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(list(value))
        kept = dict(value)
        kind = dice.randrange(12)
        if kind == 0:
            del kept[key]
        elif kind == 1:
            kept[dice.choice((key + "x", key[:-1], "", key.upper()))] = kept.pop(key)
        elif kind == 2:
            kept[str(dice.choice(ODD))] = dice.choice(ODD)
        else:
            kept[key] = in_tree(kept[key], dice)
        return kept
    if isinstance(value, list) and value and dice.random() < 0.85:
        place = dice.randrange(len(value))
        return [*value[:place], in_tree(value[place], dice), *value[place + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and dice.random() < 0.4:
        return dice.choice((value + 1, value - 1, -value, value * 1000, float(value), str(value)))
    return dice.choice(ODD)


def in_number(value: Any, dice: random.Random) -> Any:
    """The same but for one number, each as likely as any other, which is huge, tiny or none; or a shape that lies."""
    places = list(_numbers(value, ()))
    if not places:
        return in_tree(value, dice)
    place = dice.choice(places)
    shape = next((number for number, key in enumerate(place) if key in ("input_shape", "input_shapes")), None)
    if shape is not None and dice.random() < 0.5:
        return _with(value, place[: shape + 1 + (place[shape] == "input_shapes")], dice.choice(SHAPES))
    return _with(value, place, dice.choice(NUMBERS))


def _numbers(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Where the numbers of a tree are."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(inner, (*place, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place


def _with(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """The tree with another value at one place."""
    if not place:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[place[0]] = _with(value[place[0]], place[1:], new)
    return copied


def _changed(value: Any, dice: random.Random) -> Any:
    return (in_number if dice.random() < 0.4 else in_tree)(value, dice)


def _json(value: Any) -> str:
    return json.dumps(value).replace(f'"{DIGITS}"', "9" * 5000)


def in_json(data: bytes, dice: random.Random) -> bytes:
    """One value of a JSON text."""
    if dice.random() < 0.02:
        return b"[" * 100_000
    if dice.random() < 0.03 and data.lstrip().startswith(b"{"):  # a key that is there twice
        key = dice.choice(list(json.loads(data)) or [""])
        return b"{" + f"{json.dumps(key)}: {_json(dice.choice(ODD))}, ".encode() + data.lstrip()[1:]
    return _json(_changed(json.loads(data), dice)).encode()


def in_json_lines(data: bytes, dice: random.Random) -> bytes:
    """One value of one line."""
    lines = data.splitlines()
    place = dice.randrange(len(lines))
    lines[place] = in_json(lines[place], dice)
    return b"\n".join(lines) + b"\n"


def in_toml(data: bytes, dice: random.Random) -> bytes:
    """One value of a TOML text."""
    if dice.random() < 0.02:
        return b"x = " + b"[" * 100_000
    if dice.random() < 0.03:
        return data + dice.choice((b"a." * 30_000 + b"a = 1\n", b"[a]\n" * 3000, dice.choice(data.splitlines(True))))
    tree = _changed(tomllib.loads(data.decode()), dice)
    if not isinstance(tree, dict):
        return f"x = {_toml(tree)}".encode()
    plain = [f"{json.dumps(key)} = {_toml(value)}\n" for key, value in tree.items() if not isinstance(value, dict)]
    sections = [
        f"[{json.dumps(key)}]\n" + "".join(f"{json.dumps(name)} = {_toml(inner)}\n" for name, inner in value.items())
        for key, value in tree.items()
        if isinstance(value, dict)
    ]
    return "".join([*plain, *sections]).encode()


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    if value == DIGITS:
        return "0x" + "f" * 5000  # which Python reads, and then cannot write
    if isinstance(value, float):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def in_safetensors(data: bytes, dice: random.Random) -> bytes:
    """One value of the header: of the format's own part, or of the JSON that sanp keeps in it."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    own = header.get("__metadata__", {})
    if own and dice.random() < 0.7:
        key = dice.choice(sorted(own))
        try:
            damaged = in_json(own[key].encode(), dice).decode()
        except json.JSONDecodeError:  # a plain word
            damaged = str(dice.choice(ODD))
        header["__metadata__"] = {**own, key: damaged}
    else:
        header = _changed(header, dice)
    written = _json(header).encode()
    return len(written).to_bytes(8, "little") + written + data[8 + size :]


def in_picture(data: bytes, dice: random.Random) -> bytes:
    """One part of a PNG or JPEG file: repeated, left out, or with other sizes in it; of other files any bytes."""
    if data.startswith(b"\x89PNG"):
        return _in_png(data, dice)
    if not data.startswith(b"\xff\xd8"):
        return in_bytes(data, dice)
    start = dice.choice([place for place in range(len(data) - 4) if data[place] == 255 and data[place + 1] >= 0xC0])
    length = 2 + int.from_bytes(data[start + 2 : start + 4])
    part = data[start : start + length]
    if data[start + 1] in (0xC0, 0xC2) and dice.random() < 0.7:  # height and width
        sizes = struct.pack(">HH", dice.choice((0, 1, 8, 60_000, 65_535)), dice.choice((0, 1, 56, 60_000, 65_535)))
        return data[: start + 5] + sizes + data[start + 9 :]
    times = dice.choice((0, 2, 3, 100, 2000))
    return data[:start] + part * times + data[start + length :]


def _in_png(data: bytes, dice: random.Random) -> bytes:
    chunks, place = [], 8
    while place + 12 <= len(data):
        length = int.from_bytes(data[place : place + 4])
        chunks.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + length]))
        place += 12 + length
    number = dice.randrange(len(chunks))
    kind, content = chunks[number]
    if kind == b"IHDR" and dice.random() < 0.7:
        sides = [dice.choice((0, 1, 20, 56, 70_000, 2**31 - 1)) for _ in range(2)]
        chunks[number] = (
            kind,
            struct.pack(">II", *sides) + content[8:9] + bytes([dice.choice((0, 2, 3, 6, 7))]) + content[10:],
        )
    elif dice.random() < 0.3:
        kinds = (b"eXIf", b"zTXt", b"iCCP", b"tRNS", b"PLTE", b"acTL", b"fdAT")
        chunks.insert(number, (dice.choice(kinds), dice.choice((b"", content, dice.randbytes(40), bytes(100_000)))))
    else:
        chunks[number : number + 1] = [chunks[number]] * dice.choice((0, 2, 3, 100, 2000))
    whole = (struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)
    return data[:8] + b"".join(whole)

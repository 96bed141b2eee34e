"""Checks of settings and arguments: each raises an error that says what was given and what is wanted."""

import math
import os
import types
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sanp.core.errors import SanpError, shown, unknown_name
from sanp.core.limits import LARGEST_NUMBER, LARGEST_WHOLE_NUMBER

KIND_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "none",
}
"""the plain types that a setting may have, in the words of an error message"""


LONGEST_PATH, LONGEST_NAME = 4096, 255
"""bytes that Linux allows for a path and for a part of it"""


def is_installed(package: str) -> bool:
    """Whether a package is installed; a folder that only has its name does not count."""
    found = find_spec(package)
    return found is not None and found.origin is not None


def check_fields(config: Any) -> None:
    """Raises an error if a field of a dataclass has a value that its annotation does not allow.

    Checked are fields that are numbers, text, true or false, one of a few names (``Literal``), or such a thing or None.
    A number must be finite, and of a size that torch can compute with.
    """
    hints = get_type_hints(type(config))
    for field in fields(config):
        kind, value = hints[field.name], getattr(config, field.name)
        if get_origin(kind) is Literal:
            if value not in get_args(kind):
                raise unknown_name(field.name, value, get_args(kind))
            continue
        allowed = members(kind)
        if not set(allowed) <= KIND_WORDS.keys():
            continue
        fitting = [each for each in allowed if is_kind(value, each)]
        if not fitting or (float in fitting and not is_finite(value)):
            wanted = " or ".join("a finite number" if each is float else KIND_WORDS[each] for each in allowed)
            raise SanpError(f"{field.name} is {shown(value)}: give {wanted}")
        if float in fitting and abs(value) > LARGEST_NUMBER:
            raise SanpError(f"{field.name} is {shown(value)}: give a number of at most {LARGEST_NUMBER:g} in size")
        if int in fitting and abs(value) > LARGEST_WHOLE_NUMBER:
            raise SanpError(f"{field.name} is {shown(value)}: give a whole number of at most 63 bits")


def is_finite(value: float) -> bool:
    """Whether a number is finite and a float can hold it; a whole number may be too large for that."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def as_number(value: Any) -> float:
    """A number from a file as a float; a TypeError for anything else, an OverflowError if no float can hold it."""
    if not is_kind(value, float):
        raise TypeError(f"{shown(value)} is no number")
    return float(value)


def members(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows: the members of a union, or the annotation itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def is_kind(value: object, kind: Any) -> bool:
    """Whether a value is of the type ``kind``; a whole number counts as a float too, but a bool is no number."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind


def is_whole(value: object, least: int, most: int | None = None) -> bool:
    """Whether a value is a whole number from ``least`` to ``most``, without an upper bound if that is None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return least <= value and (most is None or value <= most)


def check_kind(name: str, value: object, kind: Any, wanted: str) -> None:
    """Raises an error if an argument is not of a type; a bool does not count as a whole number.

    ``name`` and ``value`` are those of the argument. ``kind`` is a type or a union of types, as ``isinstance`` takes
    it. ``wanted`` says in words what to give instead.
    """
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise SanpError(f"{name} is {shown(value)}, a {type(value).__name__}: give {wanted}")


def check_many(name: str, value: object, wanted: str) -> None:
    """Raises an error if an argument cannot be iterated.

    ``name`` and ``value`` are those of the argument; ``wanted`` says in words what to give instead.
    """
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError as error:
        raise SanpError(f"{name} is {value!r:.60}, a {type(value).__name__}: give {wanted}") from error


def checked_path(path: object) -> Path:
    """The argument as a path; an error if it is neither text nor a path."""
    check_kind("the path", path, str | os.PathLike, "text or a pathlib.Path")
    text = os.fspath(path)  # type: ignore[call-overload]
    if "\0" in str(text) or len(os.fsencode(text)) >= LONGEST_PATH:
        raise SanpError(f"the path {shown(text)} has {len(text)} characters: no file system has such a name")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in Path(text).parts):
        raise SanpError(f"the path {shown(text)} has a part of more than {LONGEST_NAME} bytes: give a shorter name")
    return Path(text)


def check_is_network(network: object) -> None:
    """Raises an error if the argument is not a ``torch.nn.Module``."""
    from torch import nn  # here, since the help of a command uses this file and does without torch

    if not isinstance(network, nn.Module):
        raise SanpError(f"{network!r:.60} is a {type(network).__name__}: give a network, a torch.nn.Module")


def require(extra: str, *packages: str) -> None:
    """Raises an error that says how to install the extra ``extra`` of sanp if one of ``packages`` is missing."""
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        raise SanpError(f"this needs {' and '.join(missing)}, not installed here: pip install 'sanp[{extra}]'")

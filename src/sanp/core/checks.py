"""Checks that many places share: settings and arguments of the kinds that are wanted."""

import math
import os
import types
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import nn

from sanp.core.errors import SanpError, unknown_name

_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    type(None): "none",
}


def is_installed(package: str) -> bool:
    """There is such a package; a folder that happens to have its name is none."""
    found = find_spec(package)
    return found is not None and found.origin is not None


def check_fields(config: Any) -> None:
    """Refuses a dataclass with a plain field whose value is not of the kind that its annotation says."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        kind, value = hints[field.name], getattr(config, field.name)
        if get_origin(kind) is Literal:
            if value not in get_args(kind):
                raise unknown_name(field.name, value, get_args(kind))
            continue
        kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
        if set(kinds) <= _WORDS.keys() and not any(_is(value, each) for each in kinds):
            wanted = " or ".join(_WORDS[each] for each in kinds)
            raise SanpError(f"{field.name} is {value!r}: give {wanted}")


def _is(value: object, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return type(value) is kind


def check_kind(name: str, value: object, kind: Any, wanted: str) -> None:
    """Refuses an argument that is not of a kind; a bool is no number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise SanpError(f"{name} is {value!r:.60}, a {type(value).__name__}: give {wanted}")


def check_many(name: str, value: object, wanted: str) -> None:
    """Refuses an argument that cannot be gone through."""
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError as error:
        raise SanpError(f"{name} is {value!r:.60}, a {type(value).__name__}: give {wanted}") from error


def checked_path(path: object) -> Path:
    """The path, if it is one."""
    check_kind("the path", path, str | os.PathLike, "text or a pathlib.Path")
    return Path(path)  # type: ignore[arg-type]


def check_network(network: object) -> None:
    """Refuses what is no network."""
    if not isinstance(network, nn.Module):
        raise SanpError(f"{network!r:.60} is a {type(network).__name__}: give a network, a torch.nn.Module")


def require(extra: str, *packages: str) -> None:
    """An error that says how to install the extra, if one of its packages is missing."""
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        raise SanpError(f"this needs {' and '.join(missing)}, not installed here: pip install 'sanp[{extra}]'")

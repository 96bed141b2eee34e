"""Reads and writes the fields of config dataclasses as text: TOML, command line options, and their help.

The help of a field is the string under it in the source.
"""

import ast
import difflib
import inspect
import json
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sanp.core.checks import KIND_WORDS, is_finite, is_kind, members
from sanp.core.errors import SanpError, shown

Config = TypeVar("Config")
OWN_SECTION = {"own_section": True}
"""metadata of a field whose section in a file has another name than the field"""


@cache
def help_texts(config: Any) -> dict[str, str]:
    """The help of each field of a config class, those of its bases too: the string under it in the source."""
    texts: dict[str, str] = {}
    bases = [base for base in inspect.getmro(config) if is_dataclass(base)]
    for each in reversed(bases):
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for line, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(below, ast.Expr):
                texts[line.target.id] = str(ast.literal_eval(below.value))
    return texts


@cache
def kinds(config: Any) -> dict[str, Any]:
    """The annotation of each field of a config class."""
    return get_type_hints(config)


def default_of(field: Field[Any]) -> Any:
    """The default value of a field."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def build_config(config: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """An object of the class ``config`` from plain values; each is checked against the annotation of its field.

    A field that is a config itself takes a mapping. ``where`` names the source of the values in error messages.
    """
    names = [field.name for field in plain_fields(config)]
    types_of = kinds(config)  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
            raise SanpError(f"{where} has an unknown setting {shown(name)}: {hint}")
        kind = types_of[name]
        if is_dataclass(kind):
            if not isinstance(value, Mapping):
                raise SanpError(
                    f"{where}: {name} is {shown(value)}, but it is a section: write [{name}] and its settings"
                )
            given[name] = build_config(kind, value, f"{where}, section {name}")  # type: ignore[arg-type]
        else:
            given[name] = fit_value(value, kind, f"{where}: {name}")
    return config(**given)


def fit_value(value: Any, kind: Any, name: str) -> Any:
    """The value as the annotation ``kind`` wants it; an error if it does not fit.

    The text ``none`` stands for None, which TOML does not have. ``name`` names the setting in error messages.
    """
    choices = _choices(kind)
    if choices is not None:
        if value not in choices:
            raise SanpError(f"{name} is {shown(value)}: choose one of {', '.join(map(str, choices))}")
        return value
    allowed = members(kind)
    if type(None) in allowed and value in (None, "none"):
        return None
    for each in allowed:
        if is_kind(value, each) and (each is not float or is_finite(value) or isinstance(value, float)):
            return float(value) if each is float else value
    wanted = " or ".join(KIND_WORDS.get(each, str(each)) for each in allowed)
    raise SanpError(f"{name} is {shown(value)}: wanted {wanted}")


def value_from_text(text: str, kind: Any, name: str) -> Any:
    """The value of a command line option from its text; the other arguments are those of :func:`fit_value`."""
    if _choices(kind) is not None or kind is str:
        return fit_value(text, kind, name)
    allowed = members(kind)
    if bool in allowed and text.lower() in ("true", "false", "yes", "no", "on", "off"):
        return text.lower() in ("true", "yes", "on")
    for number in (int, float):
        if number in allowed:
            try:
                return fit_value(number(text), kind, name)
            except ValueError:
                continue
    return fit_value(text, kind, name)


def plain_fields(config: Any) -> list[Field[Any]]:
    """The fields of a config class that have their own name in a file."""
    return [field for field in fields(config) if not field.metadata.get("own_section")]


def to_toml(config: Any) -> str:
    """A config as TOML: plain settings first, then a table for each section."""
    plain, sections = [], []
    for field in plain_fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            sections.append(f"\n[{field.name}]\n{to_toml(value)}")
        else:
            plain.append(f"{field.name} = {_toml_value(value)}\n")
    return "".join(plain) + "".join(sections)


def _toml_value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _choices(kind: Any) -> tuple[Any, ...] | None:
    return get_args(kind) if get_origin(kind) is Literal else None

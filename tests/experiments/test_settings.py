import tomllib
from dataclasses import dataclass, field
from typing import Literal

import pytest

from sanp.core.errors import SanpError
from sanp.experiments.settings import build_config, help_texts, to_toml, value_from_text


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    """how fast"""
    bias: float | None = 1.0
    """where from"""


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str = 'a "name"'
    """what it is called"""
    count: int = 3
    """how many"""
    kind: Literal["red", "blue"] = "red"
    """which"""
    on: bool = True
    """whether"""
    inner: Inner = field(default_factory=Inner)
    """the rest"""


def test_the_line_under_a_field_is_its_help() -> None:
    assert help_texts(Outer)["count"] == "how many"
    assert help_texts(Inner) == {"rate": "how fast", "bias": "where from"}


def test_a_config_survives_the_way_through_toml() -> None:
    config = Outer(count=7, on=False, inner=Inner(rate=2.0, bias=None))
    assert build_config(Outer, tomllib.loads(to_toml(config)), "here") == config


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cuont": 3}, "unknown setting 'cuont': did you mean count"),
        ({"count": 2.5}, r"count is 2\.5: wanted a whole number"),
        ({"count": True}, "count is True: wanted a whole number"),
        ({"kind": "green"}, "kind is 'green': choose one of red, blue"),
        ({"inner": 5}, r"write \[inner\]"),
        ({"inner": {"rate": "fast"}}, "section inner: rate is 'fast': wanted a number"),
    ],
)
def test_what_does_not_fit_is_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(SanpError, match=words):
        build_config(Outer, values, "here")


def test_texts_become_values_of_their_kind() -> None:
    assert value_from_text("7", int, "--count") == 7
    assert value_from_text("1e-3", float, "--rate") == 0.001
    assert value_from_text("none", float | None, "--bias") is None
    assert value_from_text("off", bool, "--on") is False
    assert value_from_text("7", str, "--name") == "7"
    with pytest.raises(SanpError, match="--count is 'many': wanted a whole number"):
        value_from_text("many", int, "--count")

import math

import numpy as np
import pytest

from sanp.core.errors import SanpError
from sanp.gating.amount import Amount, LatencyTable, parse_budget


@pytest.mark.parametrize(
    ("given", "amount"),
    [
        (0.35, Amount(0.35, "share")),
        (1, Amount(1.0, "share")),
        ("35%", Amount(0.35, "share")),
        (" 22.5 % ", Amount(0.225, "share")),
        ("0.35", Amount(0.35, "share")),
        ("60M", Amount(60e6, "flops")),
        ("1.2G", Amount(1.2e9, "flops")),
        ("2.5ms", Amount(2.5, "ms")),
        ("800us", Amount(0.8, "ms")),
    ],
)
def test_budgets_are_read_as_people_write_them(given: object, amount: Amount) -> None:
    assert parse_budget(given) == amount


@pytest.mark.parametrize(
    "given",
    ["35", 35, 0, 0.0, -0.1, "-5%", "150%", 1.5, math.nan, math.inf, "nan", "", "35 %%", "many", None, True, [0.3]],
)
def test_what_is_no_budget_gets_an_error_that_says_what_is_wanted(given: object) -> None:
    with pytest.raises(SanpError, match=r"budget .* wanted: a share"):
        parse_budget(given)


def test_an_amount_as_a_share_of_the_dense_network() -> None:
    assert parse_budget("50M").kept_of(200e6) == 0.25
    assert parse_budget("25%").kept_of(200e6) == 0.25
    with pytest.raises(SanpError, match="latency table"):
        parse_budget("2ms").kept_of(200e6)


def test_a_time_is_a_share_by_the_latency_table() -> None:
    table = LatencyTable(((0.2, 1.0), (0.6, 2.0), (1.0, 4.0)))
    assert table.kept(1.5) == pytest.approx(0.4)
    assert table.milliseconds(0.8) == pytest.approx(3.0)
    assert parse_budget("3ms").kept_of(200e6, table) == pytest.approx(0.8)
    assert table.kept(9.0) == 1.0
    with pytest.raises(SanpError, match=r"0\.5ms is below 1ms.*20\.0%.*dense network: 4ms"):
        table.kept(0.5)


def test_a_number_of_numpy_is_a_share_like_any_other() -> None:
    assert parse_budget(np.float32(0.25)) == parse_budget(0.25) == Amount(0.25, "share")

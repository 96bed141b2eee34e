import pytest

from sanp.core.bisection import bisect, find_level, largest_fitting, nearest_tried


def test_a_falling_line_is_met_where_it_has_the_value() -> None:
    assert find_level(lambda level: 1 - level, 0.35, 0.0, 1.0) == pytest.approx(0.65, abs=1e-3)
    assert find_level(lambda density: density, 0.35, 1.0, 0.0) == pytest.approx(0.35, abs=1e-3)  # low may be larger


def test_interpolation_meets_a_line_at_its_first_try() -> None:
    tried = {0.0: 1.0, 1.0: 0.0}
    bisect(lambda level: 1 - level, 0.3, tried, 0.0, 1.0, steps=20, close=1e-9, interpolate=True)
    assert len(tried) == 3 and nearest_tried(tried, 0.3) == pytest.approx(0.7)


def test_steps_and_neighbouring_ends_end_the_search() -> None:
    tried = {0.0: 1.0, 1.0: 0.0}
    bisect(lambda level: float(level < 0.5), 0.5, tried, 0.0, 1.0, steps=6, close=1e-3)
    assert len(tried) == 6
    tried = {0.0: 1.0, 1.0: 0.0}
    bisect(lambda level: float(level < 0.5), 0.5, tried, 0.0, 1.0, steps=99, close=1e-3, narrowest=0.2)
    assert len(tried) == 5  # ends 1, 1/2, 1/4, 1/8 apart


def test_the_largest_number_that_fits_is_found_from_below() -> None:
    found = largest_fitting(lambda number: number <= 0.3, 8.0, 50)
    assert found <= 0.3 and found == pytest.approx(0.3, abs=1e-12)
    assert largest_fitting(lambda number: True, 8.0, 50) == 8.0
    assert largest_fitting(lambda number: False, 8.0, 50) == 0.0

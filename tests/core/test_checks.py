import pytest

from sanp.core.checks import is_whole


@pytest.mark.parametrize(
    ("value", "most", "whole"),
    [
        (3, None, True),
        (2, None, False),
        (9, None, True),
        (9, 9, True),
        (10, 9, False),
        (4.0, None, False),
        ("4", None, False),
        (None, None, False),
    ],
)
def test_a_whole_number_lies_within_its_bounds(value: object, most: int | None, whole: bool) -> None:
    assert is_whole(value, 3, most) == whole


def test_a_bool_is_no_number() -> None:
    assert not is_whole(True, 0) and not is_whole(False, 0)

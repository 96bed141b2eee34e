"""Whole numbers among the arguments of a user, of which a bool is none."""


def is_whole(value: object, least: int, most: int | None = None) -> bool:
    """Whether a value is a whole number from ``least`` to ``most``, without an upper bound if that is None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return least <= value and (most is None or value <= most)

"""The errors that a user can cause: each says what was given, what is wanted and what to do."""

import difflib
from collections.abc import Iterable


class SanpError(ValueError):
    """Something given to sanp cannot be used; the message says what to do about it."""


class SlowWarning(UserWarning):
    """Something works, but more slowly than its user would expect; the message says why."""


class Stopped(SanpError):
    """A run was asked to stop, and has kept where it stands."""


def unknown_name(kind: str, given: object, known: Iterable[str]) -> SanpError:
    """An error for a name that is not in a table, with the nearest names that are."""
    names = sorted(known)
    near = difflib.get_close_matches(str(given), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(names)}"
    return SanpError(f"unknown {kind} {given!r}: {hint}")

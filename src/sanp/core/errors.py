"""Errors that a user can cause; each message says what was given, what is wanted and what to do."""

import difflib
from collections.abc import Iterable


class SanpError(ValueError):
    """sanp cannot use what it was given; the message says what to do about it."""


class SlowWarning(UserWarning):
    """Something works, but more slowly than its user would expect; the message says why."""


class BudgetWarning(UserWarning):
    """A network was trained, but its cost misses the budget; the message says by how much and why."""


class TeacherWarning(UserWarning):
    """A network to distill from knows nothing of the task, and is left out."""


class ForgottenWarning(UserWarning):
    """Training took what a network knew; the message says how much, and what to do."""


class LossWarning(UserWarning):
    """A network runs in fewer bits than it was trained in, and loses more than it should; the message says how much."""


class Stopped(SanpError):
    """A run was asked to stop, and has saved its state so that it can be resumed."""


def shown(value: object) -> str:
    """A value for an error message: its repr, at most 60 characters of it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to write an integer of more than 4300 digits
        return f"a very large {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def unknown_name(kind: str, given: object, known: Iterable[str]) -> SanpError:
    """The error for an unknown name; it suggests the most similar names among the known ones.

    ``kind`` says what the name is of ("backbone"), ``given`` is the unknown name, ``known`` are the names to choose
    from.
    """
    names = sorted(known)
    near = difflib.get_close_matches(given[:100] if isinstance(given, str) else shown(given), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(names)}"
    return SanpError(f"unknown {kind} {shown(given)}: {hint}")

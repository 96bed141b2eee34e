"""The native library: found beside the package, loaded once, with the types of its C functions."""

import ctypes
import functools
import os
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_long, c_void_p
from pathlib import Path

from sanp.core.errors import SanpError
from sanp.core.native import load_library
from sanp.engine.names import ACTIVATIONS, ALGORITHMS, OperatorKind

_MESSAGE_BYTES = 512
"""of an error message"""
_INTERFACE = 15
"""counted up with every change of the C interface, here and in api.cpp"""


class Unavailable(Exception):
    """The native library is not there; the message says why."""


def library_path() -> Path:
    """The library's file; raises :class:`Unavailable` without one. SANP_NATIVE may name another file, or be ``off``."""
    named = os.environ.get("SANP_NATIVE")
    if named == "off":
        raise Unavailable("SANP_NATIVE is off")
    found = [Path(named)] if named else sorted(Path(__file__).parent.glob("_native*.so"))
    if not found:
        raise Unavailable("the package was installed without a C++ compiler")
    return found[0]


@functools.cache
def native_library() -> ctypes.CDLL:
    """The library with the types of its functions; raises :class:`Unavailable` if it cannot be used."""
    path = library_path()
    try:
        library = load_library(path)
    except OSError as error:
        raise Unavailable(f"{path.name} cannot be loaded ({error})") from error
    if getattr(library, "sanp_interface", lambda: 0)() != _INTERFACE:
        raise Unavailable(f"{path.name} was built from other sources: install the package again")
    message = (c_char_p, c_long)
    weights = (c_void_p, c_void_p, c_long)
    library.sanp_create.argtypes = [c_void_p, c_long, *weights, POINTER(c_void_p), *message]
    library.sanp_free.argtypes = [c_void_p]
    library.sanp_free.restype = None
    notes = (c_void_p,) * 5
    lifts = (c_float, c_void_p)
    capped = (c_void_p,) * 3
    library.sanp_run.argtypes = [c_void_p, c_void_p, c_void_p, c_long, c_int, *notes, *lifts, *capped, *message]
    library.sanp_run_one.argtypes = [c_void_p, c_void_p, c_void_p, c_long, c_int, c_float, c_void_p, c_void_p]
    library.sanp_cap.argtypes = [c_void_p, c_long, POINTER(c_void_p), *message]
    library.sanp_cap_free.argtypes = [c_void_p]
    library.sanp_cap_free.restype = None
    library.sanp_algorithms.argtypes = [c_void_p, c_int]
    library.sanp_choose.argtypes = [c_void_p, c_int, c_int, *message]
    library.sanp_settle.argtypes = [c_void_p, *message]
    library.sanp_operators.argtypes = [c_void_p]
    library.sanp_gates.argtypes = [c_void_p]
    library.sanp_isa.argtypes = [c_void_p]
    library.sanp_isa.restype = c_char_p
    library.sanp_byte_isa.argtypes = [c_void_p]
    library.sanp_byte_isa.restype = c_char_p
    _check_names(library, path)
    return library


def _check_names(library: ctypes.CDLL, path: Path) -> None:
    """A number must name the same operator, activation or algorithm here and in the library."""
    tables = {
        "sanp_operator_name": {kind.value: kind.name.lower() for kind in OperatorKind},
        "sanp_activation_name": dict(enumerate(ACTIVATIONS)),
        "sanp_algorithm_name": dict(enumerate(ALGORITHMS)),
    }
    for function, wanted in tables.items():
        name_of = getattr(library, function)
        name_of.argtypes, name_of.restype = [c_int], c_char_p
        found = {number: name.decode() for number in range(max(wanted) + 2) if (name := name_of(number)) is not None}
        if found != wanted:
            raise Unavailable(f"{path.name} has other numbers for its operators: install the package again")


def call_native(function: Callable[..., int], *given: object) -> None:
    """Calls a function of the library whose last two arguments are room for a message; raises what it says there."""
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    if function(*given, message, _MESSAGE_BYTES) != 0:
        raise SanpError(f"the native engine refused: {message.value.decode(errors='replace')}")

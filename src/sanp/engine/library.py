"""The native library: found beside the package, loaded once, called through a plain C interface."""

import ctypes
import functools
import os
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int, c_long, c_void_p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sanp.core.errors import SanpError
from sanp.core.native import load_library
from sanp.engine.names import ACTIVATIONS, ALGORITHMS, OperatorKind

_ROOM = 512
"""bytes of an error message"""
_INTERFACE = 14
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
    library.sanp_create.argtypes = [c_void_p, c_long, c_void_p, c_long, POINTER(c_void_p), *message]
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


class NativeProgram:
    """A program inside the library; freed with this object.

    ``code`` and ``data`` are what :class:`ProgramWriter` writes; ``inputs`` and ``outputs`` are shapes (C, H, W).
    """

    def __init__(
        self,
        code: Sequence[int],
        data: NDArray[np.float32],
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
    ) -> None:
        self._library = native_library()
        self._handle = c_void_p()
        self.inputs, self.outputs = inputs, outputs
        numbers = np.asarray(code, dtype=np.int64)
        message = ctypes.create_string_buffer(_ROOM)
        where = (numbers.ctypes.data, numbers.size, data.ctypes.data, data.size)
        _check(self._library.sanp_create(*where, byref(self._handle), message, _ROOM), message)
        self.operators: int = self._library.sanp_operators(self._handle)
        self.gates: int = self._library.sanp_gates(self._handle)
        self.chosen = dict.fromkeys(range(self.operators), 0)
        """by operator, the number of a convolution's algorithm; 0 for all others"""

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.sanp_free(self._handle)

    @property
    def instruction_set(self) -> str:
        """The kernels that were picked for this machine: avx512, avx2 or plain."""
        name: bytes = self._library.sanp_isa(self._handle)
        return name.decode()

    def run(
        self,
        inputs: Sequence[NDArray[np.float32]],
        threads: int,
        *,
        seconds: NDArray[np.float64] | None = None,
        live: NDArray[np.int32] | None = None,
    ) -> tuple[list[NDArray[np.float32]], NDArray[np.bool_]]:
        """The outputs of every sample, and which samples held only finite numbers.

        ``seconds`` (operators,) gets the time of each operator added, of ``threads`` the first one's; ``live``
        (samples, gates) is filled with the numbers of open channels.
        """
        samples = len(inputs[0])
        outputs = [np.empty((samples, *shape), np.float32) for shape in self.outputs]
        finite = self.run_at(
            [x.ctypes.data for x in inputs],
            [y.ctypes.data for y in outputs],
            samples,
            threads,
            seconds=None if seconds is None else seconds.ctypes.data,
            live=None if live is None else live.ctypes.data,
        )
        return outputs, np.frombuffer(finite, np.bool_)

    def run_at(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        samples: int,
        threads: int,
        *,
        seconds: int | None = None,
        live: int | None = None,
        forced: int | None = None,
        scores: int | None = None,
        lift: float = 0.0,
        lifts: int | None = None,
        cap: c_void_p | None = None,
        counts: int | None = None,
        places: int | None = None,
    ) -> bytes:
        """The same on addresses of contiguous float32 memory; gives a byte for each sample, 0 if it was not finite.

        ``forced`` (samples, channels of all gates), a byte each, says which channels are open, in place of the gates'
        own decisions; ``scores``, float32 of the same shape, is filled with what the gates would have decided by: for
        a gate whose channels are decided in groups, a number for each group stands at the start of its part.

        ``lift`` is added to the thresholds of all gates, and so is, for each sample, its number in ``lifts``, float32.

        ``cap`` is the handle of a :class:`NativeCap`. It then wants ``counts`` (samples, gates of the network), int32,
        which at first has the cap's reserves and in the end the open channels of the gates that ran, and ``places``
        (gates of the program), int32: where each stands among those of the network.
        """
        given = (c_void_p * len(inputs))(*inputs)
        wanted = (c_void_p * len(outputs))(*outputs)
        finite = ctypes.create_string_buffer(max(samples, 1))
        message = ctypes.create_string_buffer(_ROOM)
        _check(
            self._library.sanp_run(
                self._handle,
                given,
                wanted,
                samples,
                threads,
                seconds,
                live,
                finite,
                forced,
                scores,
                lift,
                lifts,
                cap,
                counts,
                places,
                message,
                _ROOM,
            ),
            message,
        )
        return finite.raw[:samples]

    def run_one(
        self,
        given: int,
        wanted: int,
        samples: int,
        threads: int,
        lift: float = 0.0,
        cap: c_void_p | None = None,
        places: int | None = None,
    ) -> bool:
        """One input to one output by the shortest way; false after an error or a number that is not finite.

        ``lift``, ``cap`` and ``places`` are those of :meth:`run_at`.
        """
        status: int = self._library.sanp_run_one(self._handle, given, wanted, samples, threads, lift, cap, places)
        return status == 0

    def algorithms(self, operator: int) -> list[int]:
        """The numbers of the :data:`ALGORITHMS` that can compute an operator; none if it is not a convolution."""
        bits: int = self._library.sanp_algorithms(self._handle, operator)
        return [] if bits < 0 else [i for i in range(len(ALGORITHMS)) if bits >> i & 1]

    def choose(self, operator: int, algorithm: int) -> None:
        """Sets how a convolution is computed. Not while the program runs."""
        message = ctypes.create_string_buffer(_ROOM)
        _check(self._library.sanp_choose(self._handle, operator, algorithm, message, _ROOM), message)
        self.chosen[operator] = algorithm

    def settle(self) -> None:
        """Frees the weights of the algorithms that were not chosen; after this there is nothing left to choose."""
        message = ctypes.create_string_buffer(_ROOM)
        _check(self._library.sanp_settle(self._handle, message, _ROOM), message)


class NativeCap:
    """A cap on what a sample may cost, inside the library; freed with this object.

    ``code`` has its limit, the numbers of its bound and its reserves, as native/cap.cpp reads them.
    """

    def __init__(self, code: Sequence[int]) -> None:
        self._library = native_library()
        self.handle = c_void_p()
        numbers = np.asarray(code, dtype=np.int64)
        message = ctypes.create_string_buffer(_ROOM)
        where = (numbers.ctypes.data, numbers.size)
        _check(self._library.sanp_cap(*where, byref(self.handle), message, _ROOM), message)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.sanp_cap_free(self.handle)


def _check(status: int, message: "ctypes.Array[c_char]") -> None:
    if status != 0:
        raise SanpError(f"the native engine refused: {message.value.decode(errors='replace')}")

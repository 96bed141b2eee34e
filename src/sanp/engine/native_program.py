"""A program inside the native library: created from numbers and weights, run, tuned, and freed with its object."""

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_long, c_void_p

import numpy as np
from numpy.typing import NDArray

from sanp.engine.library import call_native, native_library
from sanp.engine.names import ALGORITHMS


class NativeProgram:
    """A program inside the library; freed with this object.

    ``code`` and ``weights`` are what :class:`ProgramWriter` writes; ``inputs`` and ``outputs`` are shapes (C, H, W).
    """

    def __init__(
        self,
        code: Sequence[int],
        weights: Sequence[NDArray[np.float32]],
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
    ) -> None:
        self._library = native_library()
        self._handle = c_void_p()
        self.inputs, self.outputs = inputs, outputs
        numbers = np.asarray(code, dtype=np.int64)
        data = (c_void_p * len(weights))(*(array.ctypes.data for array in weights))
        sizes = (c_long * len(weights))(*(array.size for array in weights))
        where = (numbers.ctypes.data, numbers.size, data, sizes, len(weights))
        call_native(self._library.sanp_create, *where, byref(self._handle))
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

    @property
    def int8_instruction_set(self) -> str:
        """The kernels for bytes beside them: vnni_vbmi, vnni, avx2 or plain."""
        name: bytes = self._library.sanp_byte_isa(self._handle)
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
        notes = (seconds, live, finite, forced, scores)
        settings = (lift, lifts, cap, counts, places)
        call_native(self._library.sanp_run, self._handle, given, wanted, samples, threads, *notes, *settings)
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
        call_native(self._library.sanp_choose, self._handle, operator, algorithm)
        self.chosen[operator] = algorithm

    def settle(self) -> None:
        """Frees the weights of the algorithms that were not chosen; after this there is nothing left to choose."""
        call_native(self._library.sanp_settle, self._handle)

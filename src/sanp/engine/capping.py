"""The cap of a compiled network: the rule of gating/cap.py, applied by the native programs."""

from collections.abc import Sequence
from ctypes import byref, c_void_p

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sanp.engine.library import call_native, native_library
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.steps import NativeStep, Spending, TorchStep
from sanp.gating.cap import Cap
from sanp.spm.binarize import keep_best
from sanp.spm.gated_conv import GatedConv
from sanp.spm.module import SPM


class NativeCap:
    """A cap on what a sample may cost, inside the library; freed with this object.

    ``code`` has its limit, the numbers of its bound and its reserves, as native/cap.cpp reads them.
    """

    def __init__(self, code: Sequence[int]) -> None:
        self._library = native_library()
        self.handle = c_void_p()
        numbers = np.asarray(code, dtype=np.int64)
        where = (numbers.ctypes.data, numbers.size)
        call_native(self._library.sanp_cap, *where, byref(self.handle))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.sanp_cap_free(self.handle)


class Capping:
    """A cap for the steps of one engine; any number of threads may use it.

    Raises :class:`Unsupported` if a gate runs in torch, where its open channels could not be counted.
    """

    def __init__(self, cap: Cap, steps: Sequence[NativeStep | TorchStep]) -> None:
        units = [unit for step in steps if isinstance(step, TorchStep) for unit in step.units]
        if any(isinstance(unit.module, GatedConv) for unit in units):
            raise Unsupported("a cap (max_flops) on a network some of whose gates run in torch")
        self.cap = cap
        gates = cap.bound.gates
        place = {name: number for number, name in enumerate(gates)}
        native = [step for step in steps if isinstance(step, NativeStep)]
        if {gate.layer for step in native for gate in step.gates} != place.keys():
            raise Unsupported("a cap (max_flops) on layers that run otherwise than on the network's example")
        reserve = [cap.reserve[name] for name in gates]
        self._native = NativeCap([cap.limit, *cap.bound.code(), *reserve])
        self._reserve: NDArray[np.int32] = np.array(reserve, np.int32)
        self._places = {id(step): np.array([place[gate.layer] for gate in step.gates], np.int32) for step in native}

    def spending(self, samples: int) -> Spending:
        """What the samples of one call have spent: nothing at its start, so that every gate has its reserve."""
        return Spending(self._native.handle, np.tile(self._reserve, (samples, 1)), self._places)

    def addresses(self, step: NativeStep) -> tuple[c_void_p, int]:
        """The native cap, and where the places of a step's gates are."""
        return self._native.handle, self._places[id(step)].ctypes.data

    def decided(self, spm: SPM, layer: str, score: Tensor, before: dict[str, Tensor]) -> Tensor:
        """What a gate decided by its scores (N, groups) under the cap: (N, groups), 0 or 1.

        ``before`` has the decisions (N, C_out) of the layers that ran before ``layer``.
        """
        decision = spm.binarize.decide(score)
        opened = {name: each.sum(1).long().numpy() for name, each in before.items()}
        at_most = self.cap.allowed(layer, opened, (decision.sum(1).long() * spm.group).numpy())
        return decision if at_most is None else keep_best(decision, score, torch.from_numpy(at_most) // spm.group)

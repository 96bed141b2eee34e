"""The steps of a compiled network: programs of the native library, and operators that run in torch between them."""

from collections.abc import Mapping
from ctypes import c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from sanp.core.errors import SanpError
from sanp.engine.lowering.batch_size import Count, Tiled
from sanp.engine.native_program import NativeProgram
from sanp.engine.plan import PlanRow
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.tracing.graph import Node, Value

Values = dict[Value, Tensor]


@dataclass
class Forced:
    """Decisions that the gates of one call have to take, and the scores that they would have decided by."""

    decisions: Mapping[str, Tensor] | None
    """layer name to (N, C_out), 0 or 1; None: the gates decide, and only their scores are wanted"""
    scores: dict[str, Tensor] = field(default_factory=dict)
    """layer name to (N, groups of channels), filled in as the gates run"""


@dataclass(frozen=True)
class Spending:
    """What the samples of one call have spent of a cap (engine/capping.py)."""

    cap: c_void_p
    """of a NativeCap"""
    counts: NDArray[np.int32]
    """(N, gates of the network): channels that are open, for gates that have not run their reserve"""
    places: Mapping[int, NDArray[np.int32]]
    """by identity of a native step, where its gates stand among those of the network"""

    def of(self, step: "NativeStep") -> dict[str, Any]:
        """The arguments of a native step's program."""
        return {"cap": self.cap, "counts": self.counts.ctypes.data, "places": self.places[id(step)].ctypes.data}


Lift = float | NDArray[np.float32]
"""what is added to the thresholds of all gates: one number, or one for each sample (N,)"""


@dataclass(frozen=True)
class CallSettings:
    """What one call asks of its steps beside the inputs."""

    forced: Forced | None = None
    """decisions that the gates have to take; None: they decide"""
    lift: Lift = 0.0
    spending: Spending | None = None
    """of a cap; None: there is none"""


PLAIN_CALL = CallSettings()


@dataclass(frozen=True)
class NativeGate:
    """A gate of a native program."""

    layer: str
    channels: int
    groups: int
    """groups of channels that are decided together"""


@dataclass(frozen=True)
class NativeStep:
    """A program of the native library, and the traced values that go in and come out."""

    program: NativeProgram
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    shapes: tuple[tuple[int, ...], ...]
    """of the outputs, without the batch dimension"""
    gates: tuple[NativeGate, ...]
    threads: int
    rows: tuple[PlanRow, ...]
    """of the plan, one for each operator"""

    def run(self, values: Values, batch: int, asked: CallSettings = PLAIN_CALL) -> bytes:
        """Adds the outputs to ``values``; gives a byte for each sample, 0 if it held NaN or infinity."""
        # A view of a complex tensor's conjugate may say that its numbers are those in memory with the other sign.
        given = [values[value].to(torch.float32).resolve_neg().contiguous() for value in self.inputs]
        if any(len(x) != batch for x in given):
            raise SanpError(f"a native segment is given {[len(x) for x in given]} rows for {batch} samples")
        made = [torch.empty(batch, *shape) for shape in self.shapes]
        each = None if isinstance(asked.lift, float) else np.ascontiguousarray(asked.lift, np.float32)
        settings: dict[str, Any] = {"lift": asked.lift} if each is None else {"lifts": each.ctypes.data}
        if asked.spending is not None and self.gates:
            settings |= asked.spending.of(self)
        addresses = [x.data_ptr() for x in given], [y.data_ptr() for y in made]
        if asked.forced is None or not self.gates:
            finite = self.program.run_at(*addresses, batch, self.threads, **settings)
        else:
            finite = self._run_forced(*addresses, batch, asked.forced, settings)
        values.update(zip(self.outputs, made, strict=True))
        return finite

    def _run_forced(
        self, inputs: list[int], outputs: list[int], batch: int, forced: Forced, settings: dict[str, Any]
    ) -> bytes:
        """Runs the program with the decisions of ``forced``, whose scores it fills in."""
        scores = torch.empty(batch, sum(gate.channels for gate in self.gates))
        opened = None
        if forced.decisions is not None:
            opened = torch.cat([forced.decisions[gate.layer] for gate in self.gates], 1).to(torch.uint8).contiguous()
        finite = self.program.run_at(
            inputs,
            outputs,
            batch,
            self.threads,
            forced=None if opened is None else opened.data_ptr(),
            scores=scores.data_ptr(),
            **settings,
        )
        parts = scores.split([gate.channels for gate in self.gates], 1)
        forced.scores |= {gate.layer: part[:, : gate.groups] for gate, part in zip(self.gates, parts, strict=True)}
        return finite


@dataclass(frozen=True)
class TorchUnit:
    """Operators that run in torch as they were traced, but for the size of the batch."""

    nodes: tuple[Node, ...]
    module: GatedConv | FollowingConv | None = None
    """the gated convolution that they make up"""
    layer: str = ""
    """its name among the decisions"""
    ends: tuple[Value, ...] = ()
    """its input and its output"""

    def run(self, values: Values, batch: int) -> None:
        """Adds all that the operators make to ``values``."""

        def given(leaf: Any) -> Any:
            if isinstance(leaf, Value):
                return values[leaf]
            return leaf.at(batch) if isinstance(leaf, Count | Tiled) else leaf

        for node in self.nodes:
            args, kwargs = tree_map(given, (node.args, node.kwargs))
            made = node.func(*args, **kwargs)
            for value, leaf in zip(node.outputs, tree_flatten(made)[0], strict=True):
                if value is not None:
                    values[value] = leaf

    def run_forced(self, values: Values, batch: int, forced: Forced) -> None:
        """As the module computes it with other decisions than its own."""
        assert self.module is not None
        x = values[self.ends[0]]
        if forced.decisions is None:
            if isinstance(self.module, GatedConv):
                forced.scores[self.layer] = self.module.spm.score(self.module.spm(x))
            self.run(values, batch)
            return
        if isinstance(self.module, FollowingConv):
            scale = self.module.open_channels(forced.decisions)
        else:
            gates = self.module.spm(x)
            forced.scores[self.layer] = self.module.spm.score(gates)
            scale = gates.deciding(forced.decisions[self.layer]).scale
        values[self.ends[1]] = self.module.scaled(self.module.features(x), scale)


@dataclass(frozen=True)
class TorchStep:
    """Consecutive units that run in torch."""

    units: tuple[TorchUnit, ...]

    def run(self, values: Values, batch: int, asked: CallSettings = PLAIN_CALL) -> bytes:
        """Adds all that the operators make to ``values``; every sample counts as finite, for torch skips nothing.

        Lift and spending are not used: where budgets or a cap can be set, no gate runs in torch.
        """
        for unit in self.units:
            if asked.forced is not None and unit.module is not None and not unit.module.norm_outside:
                unit.run_forced(values, batch, asked.forced)
            else:
                unit.run(values, batch)
        return b"\1" * batch

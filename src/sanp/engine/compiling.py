"""sanp.compile: makes a network's engine, and compares the two before it gives the engine out."""

import functools
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from sanp.core.checks import check_network
from sanp.core.copying import copy_of
from sanp.core.errors import SanpError, SlowWarning
from sanp.core.modules import call_with, tensors_in, unwrapped
from sanp.engine.agreement import check_batches, disagreement
from sanp.engine.arguments import in_order
from sanp.engine.compiled import Engine
from sanp.engine.library import Unavailable, load
from sanp.engine.lowering.batch_size import for_any_batch
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.node_flops import node_flops
from sanp.engine.lowering.operators import Conv, Gate
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.segments import Segment, cut
from sanp.engine.lowering.units import Unit
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.plan import Plan, PlanRow
from sanp.engine.plan_rows import native_row
from sanp.engine.steps import NativeGate, NativeStep, TorchStep, TorchUnit
from sanp.engine.tune import choose_usual, tune_program
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.spm.recording import call_name
from sanp.tracing.graph import Node
from sanp.tracing.tracer import trace_forward

_BATCH = 2
"""samples of the trace: with one, a reshape that mixes samples could not be told from one that does not"""
_MUCH = 0.05
"""the share of the FLOPs that may run in torch without a word"""
_TUNED = 4
"""the most samples that algorithms are timed with"""


def compile(network: nn.Module, example_input: Any, *, threads: int = 1, tune: bool = True) -> Engine:
    """Compiles a network for the CPU: the engine gives the same outputs, and never computes a pruned channel.

    ``network`` is a gated network, or any other. ``example_input`` is a tensor, a tuple of arguments or a dict of
    keyword arguments that its forward takes. It fixes every shape but the batch size, for which any number will do
    later; algorithms are timed with as many samples as it has, up to four. ``threads`` is how many threads a call uses.

    ``tune=False`` takes the algorithm that is usually the fastest for each convolution, without timing any.

    What the native part does not know runs in torch; ``plan`` of the engine says what runs where and why, and a warning
    is given where that is more than a twentieth of the FLOPs. Later changes of ``network`` do not reach the engine.
    """
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= 1024:
        raise SanpError(f"threads={threads!r} was given: wanted is a number from 1 to 1024")
    network = unwrapped(network)
    _check_network(network)
    reference = copy_of(network).eval().requires_grad_(False)
    reference.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    builder = _Builder(reference, in_order(reference, example_input), threads, tune)
    try:
        load()
    except Unavailable as reason:
        _warn_once(str(reason))
        return builder.in_torch(f"no native library: {reason}")
    try:
        engine = builder.build()
    except Unsupported as reason:
        engine = builder.in_torch(str(reason))
    _warn_of_torch(engine.plan)
    return engine


def _warn_of_torch(plan: Plan) -> None:
    if plan.native_share < 1 - _MUCH:
        warnings.warn(
            f"sanp.compile runs {1 - plan.native_share:.0%} of this network's FLOPs in torch, which skips nothing: "
            f"{plan.reasons()}. print(engine.plan) has every operator",
            SlowWarning,
            stacklevel=3,
        )


@functools.cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"sanp.compile runs in torch and skips nothing: {reason}", stacklevel=3)


def _check_network(network: nn.Module) -> None:
    check_network(network)
    devices = {str(parameter.device) for parameter in network.parameters()} - {"cpu"}
    if devices:
        raise SanpError(
            f"the network is on {', '.join(sorted(devices))}: a compiled network runs on the CPU; use .cpu()"
        )


def _repeated(example: Any, times: int) -> Any:
    """The example with its first sample so many times."""

    def repeated(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        samples = leaf.detach()[:1].expand(times, *leaf.shape[1:])
        return samples.clone(memory_format=torch.contiguous_format)

    return tree_map(repeated, example)


class _Builder:
    """Makes the engine of one traced network."""

    def __init__(self, reference: nn.Module, example: Any, threads: int, tuned: bool) -> None:
        self.reference, self.example, self.threads, self.tuned = reference, example, threads, tuned
        self.given = tensors_in(example)
        self.for_any_batch: dict[int, Node] = {}
        """torch's nodes with the batch size as a parameter, by identity of the traced node"""
        if any(leaf.dim() and not len(leaf) for leaf in self.given):
            raise SanpError("example_input has no samples: give at least one")
        self.by_sample = all(leaf.dim() and len(leaf) == len(self.given[0]) for leaf in self.given)
        """every input has a row for each sample"""
        traced = _repeated(example, _BATCH) if self.by_sample else example
        self.trace, self.traced_tensors = trace_forward(reference, traced), tensors_in(traced)
        with torch.no_grad():
            self.expected, self.structure = tree_flatten(call_with(reference, example))

    def build(self) -> Engine:
        """The engine with its native steps; raises :class:`Unsupported` if none can be made, or if it is wrong."""
        tensors = [leaf for leaf in self.expected if isinstance(leaf, Tensor)]
        if len(tensors) != len(self.expected) or len(tensors) != len(self.trace.outputs):
            raise Unsupported("an output that is not made of tensors of this forward")
        if not all(bool(torch.isfinite(p).all()) for p in self.reference.parameters()):
            raise Unsupported("weights that are NaN or infinite")
        if any(leaf.dtype != torch.float32 for leaf in self.given):
            raise Unsupported("an input that is not float32")
        if not self.by_sample:
            raise Unsupported("inputs without a row for each sample")
        segments = cut(self.trace)
        if all(lowering is None for _, lowering in segments):
            raise Unsupported("; ".join(dict.fromkeys(segments[0][0].reasons)))
        if any(lowering is None for _, lowering in segments):
            more = trace_forward(self.reference, _repeated(self.example, _BATCH + 1))
            self.for_any_batch = for_any_batch(self.trace.nodes, more.nodes, _BATCH, _BATCH + 1)
        for winograd in (True, False):
            try:
                engine = self._assemble(segments, winograd=winograd)
                if self._agrees(engine):
                    return engine
            except Unsupported:
                raise
            except Exception as error:  # an operator in torch may raise anything under another batch size
                why = " ".join(str(error).split())[:100]
                raise Unsupported(f"it does not run in stretches ({type(error).__name__}: {why})") from error
        raise Unsupported("the native result differs from torch's")

    def in_torch(self, why: str) -> Engine:
        """An engine that only calls the network."""
        name = type(self.reference).__name__
        return self._engine((), (PlanRow(name, "torch", "whole network", why),), "none", 0.0)

    def _assemble(self, segments: list[tuple[Segment, Lowering | None]], *, winograd: bool) -> Engine:
        steps: list[NativeStep | TorchStep] = []
        rows: list[PlanRow] = []
        instruction_set = ""
        values = dict(zip(self.trace.inputs, self.traced_tensors, strict=True))
        names: list[str] = []
        for segment, lowering in segments:
            if lowering is not None:
                step = self._native(segment, lowering, values, names, winograd)
                instruction_set = step.program.instruction_set
                steps.append(step)
                rows += [row for row in step.rows if row.how not in ("input", "output")]
                step.run(values, _BATCH)
            else:
                torch_step = TorchStep(tuple(self._torch_unit(unit, names) for unit in segment.units))
                torch_step.run(values, _BATCH)
                steps.append(torch_step)
                pairs = zip(segment.units, segment.reasons, strict=True)
                rows += [PlanRow(unit.name, "torch", unit.nodes[0].op, why) for unit, why in pairs]
        return self._engine(tuple(steps), tuple(rows), instruction_set, self._native_share(segments))

    def _torch_unit(self, unit: Unit, names: list[str]) -> TorchUnit:
        nodes = tuple(self.for_any_batch.get(id(node), node) for node in unit.nodes)
        if not isinstance(unit.module, GatedConv | FollowingConv):
            return TorchUnit(nodes)
        if isinstance(unit.module, FollowingConv):
            return TorchUnit(nodes, unit.module, unit.module.name, (*unit.inputs, *unit.outputs))
        names.append(call_name(unit.module.name, names))
        return TorchUnit(nodes, unit.module, names[-1], (*unit.inputs, *unit.outputs))

    def _native(
        self,
        segment: Segment,
        lowering: Lowering,
        values: dict[Any, Tensor],
        names: list[str],
        winograd: bool,
    ) -> NativeStep:
        """A segment's program; without ``winograd`` every convolution is computed directly."""
        assert isinstance(lowering.writer, ProgramWriter)
        program = lowering.writer.build()
        if winograd and not self.tuned:
            choose_usual(program, lowering.writer)
        elif winograd:
            samples = min(_TUNED, len(self.given[0]))
            inputs = [values[value][:1].numpy().repeat(samples, 0) for value in lowering.inputs]
            tune_program(program, _timing_keys(lowering.writer), inputs, self.threads)
        rows = tuple(
            native_row(operator, name, program.chosen[number], lowering.writer)
            for number, (operator, name) in enumerate(zip(lowering.writer.operators, lowering.origin, strict=True))
        )
        program.settle()
        shapes = tuple(tuple(self.trace.shapes[value.index][1:]) for value in segment.outputs)
        gates = []
        written = [operator.weights for operator in lowering.writer.operators if isinstance(operator, Gate)]
        for module, weights in zip(lowering.gated, written, strict=True):
            names.append(call_name(module.name, names))
            gates.append(NativeGate(names[-1], len(weights.b2), len(weights.b2) // weights.group))
        return NativeStep(program, tuple(lowering.inputs), segment.outputs, shapes, tuple(gates), self.threads, rows)

    def _native_share(self, segments: list[tuple[Segment, Lowering | None]]) -> float:
        flops = [
            (segment.native, sum(node_flops(self.trace, node) for node in segment.nodes)) for segment, _ in segments
        ]
        return sum(count for native, count in flops if native) / max(1, sum(count for _, count in flops))

    def _engine(self, steps: Any, rows: tuple[PlanRow, ...], instruction_set: str, share: float) -> Engine:
        return Engine(
            self.reference,
            steps,
            inputs=self.trace.inputs,
            example=self.example,
            outputs=self.trace.outputs,
            structure=self.structure,
            plan=Plan(rows, instruction_set, self.threads, share),
        )

    def _agrees(self, engine: Engine) -> bool:
        """Whether every sample agrees, in other batch sizes than the trace's."""
        return all(disagreement(engine, self.reference, batch) is None for batch in check_batches(self.example))


def _timing_keys(writer: ProgramWriter) -> list[tuple[object, ...]]:
    """What the time of each convolution depends on; nothing for the other operators, which have no choice."""

    def key(conv: Conv) -> tuple[object, ...]:
        adds = conv.residual >= 0
        return (writer.shapes[conv.x], adds, writer.shapes[conv.out], *conv.window.numbers(), conv.groups)

    return [key(operator) if isinstance(operator, Conv) else () for operator in writer.operators]

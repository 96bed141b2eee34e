"""sanp.compile: from a network to its fast twin, checked against it before it is given out."""

import copy
import functools
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from sanp.checked import check_network
from sanp.engine.agreement import agree, near_ties
from sanp.engine.engine import Engine, NativeStep, TorchStep
from sanp.engine.gates import Unsupported
from sanp.engine.library import ALGORITHMS, Unavailable, load
from sanp.engine.lowering import Lowering
from sanp.engine.plan import Plan, PlanRow
from sanp.engine.program import ProgramWriter
from sanp.engine.segments import Segment, cut
from sanp.engine.tune import tune
from sanp.errors import SanpError
from sanp.record import unwrapped
from sanp.trace import Trace, call_with, trace

_BATCH = 2  # of the trace: with one sample a reshape that mixes samples could not be told from one that does not
_TUNED = 4  # samples at most that algorithms are timed with
_OPERATORS = (
    "", "input", "output", "conv", "gate", "linear", "pool", "pool", "activation", "add", "multiply", "affine",
    "concat", "channels", "flatten",
)  # fmt: skip


def compile(network: nn.Module, example_input: Any, *, threads: int = 1) -> Engine:
    """The fast twin of a network: same outputs, a pruned channel is never computed.

    ``network`` is a gated one, or any other; ``example_input`` fixes everything but the batch size. Any size is right;
    the fastest algorithms are looked for at the example's, one image or several. What the native part does not know
    runs in torch; ``plan`` of the result says what runs where and why. Later changes of ``network`` do not reach the
    result.
    """
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= 1024:
        raise SanpError(f"threads={threads!r} was given: wanted is a number from 1 to 1024")
    network = unwrapped(network)
    _check_network(network)
    example = tree_map(lambda leaf: _repeated(leaf) if isinstance(leaf, Tensor) else leaf, example_input)
    reference = copy.deepcopy(network).eval().requires_grad_(False)
    seen = trace(reference, example)
    leaves = [leaf for leaf in tree_leaves(example) if isinstance(leaf, Tensor)]
    builder = _Builder(reference, seen, example_input, leaves, threads)
    try:
        load()
    except Unavailable as reason:
        _warn_once(str(reason))
        return builder.in_torch(f"no native library: {reason}")
    try:
        return builder.build()
    except Unsupported as reason:
        return builder.in_torch(str(reason))


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


def _repeated(tensor: Tensor) -> Tensor:
    if tensor.dim() == 0 or len(tensor) == 0:
        raise SanpError("example_input has no samples: give at least one")
    return tensor.detach()[:1].expand(_BATCH, *tensor.shape[1:]).clone()


class _Builder:
    """Makes the engine of one traced network."""

    def __init__(self, reference: nn.Module, seen: Trace, example: Any, leaves: list[Tensor], threads: int) -> None:
        self.reference, self.seen, self.example, self.leaves, self.threads = reference, seen, example, leaves, threads
        self.samples = min([_TUNED, *(len(leaf) for leaf in tree_leaves(example) if isinstance(leaf, Tensor))])
        with torch.no_grad():
            self.expected, self.structure = tree_flatten(call_with(reference, example))

    def build(self) -> Engine:
        """The engine with its native steps; raises :class:`Unsupported` if nothing of it can be native."""
        tensors = [leaf for leaf in self.expected if isinstance(leaf, Tensor)]
        if len(tensors) != len(self.expected) or len(tensors) != len(self.seen.outputs):
            raise Unsupported("an output that is not made of tensors of this forward")
        if not all(bool(torch.isfinite(p).all()) for p in self.reference.parameters()):
            raise Unsupported("weights that are NaN or infinite")
        if any(leaf.dtype != torch.float32 for leaf in self.leaves):
            raise Unsupported("an input that is not float32")
        segments = cut(self.seen)
        if all(lowering is None for _, lowering in segments):
            raise Unsupported("; ".join(dict.fromkeys(segments[0][0].reasons)))
        for winograd in (True, False):
            engine = self._assemble(segments, winograd=winograd)
            if self._agrees(engine):
                return engine
        raise Unsupported("the native result differs from torch's")

    def in_torch(self, why: str) -> Engine:
        """The network itself behind the same face."""
        name = type(self.reference).__name__
        return self._engine((), (PlanRow(name, "torch", "whole network", why),), "none")

    def _assemble(self, segments: list[tuple[Segment, Lowering | None]], *, winograd: bool) -> Engine:
        steps: list[NativeStep | TorchStep] = []
        rows: list[PlanRow] = []
        instruction_set = ""
        values = dict(zip(self.seen.inputs, self.leaves, strict=True))
        for segment, lowering in segments:
            if lowering is not None:
                step, made = self._native(segment, lowering, values, winograd)
                instruction_set = step.program.instruction_set
                steps.append(step)
                rows += made
                step.run(values, _BATCH)
            else:
                torch_step = TorchStep(tuple(segment.nodes), _BATCH)
                torch_step.run(values, _BATCH)
                steps.append(torch_step)
                pairs = zip(segment.units, segment.reasons, strict=True)
                rows += [PlanRow(unit.name, "torch", unit.nodes[0].op, why) for unit, why in pairs]
        return self._engine(tuple(steps), tuple(rows), instruction_set)

    def _native(
        self, segment: Segment, lowering: Lowering, values: dict[Any, Tensor], winograd: bool
    ) -> tuple[NativeStep, list[PlanRow]]:
        assert isinstance(lowering.writer, ProgramWriter)
        program = lowering.writer.build()
        if winograd:
            inputs = [values[value][:1].numpy().repeat(self.samples, 0) for value in lowering.inputs]
            tune(program, _timing_keys(lowering), inputs, self.threads)
        rows = []
        chosen = program.chosen
        for op, (numbers, name) in enumerate(zip(lowering.writer.operators, lowering.origin, strict=True)):
            kind = _OPERATORS[numbers[0]]
            if kind not in ("input", "output"):
                rows.append(PlanRow(name, "native", ALGORITHMS[chosen[op]] if kind == "conv" else kind))
        program.settle()
        shapes = tuple(tuple(self.seen.shapes[value.index][1:]) for value in segment.outputs)
        return NativeStep(program, tuple(lowering.inputs), segment.outputs, shapes, self.threads), rows

    def _engine(self, steps: Any, rows: tuple[PlanRow, ...], instruction_set: str) -> Engine:
        return Engine(
            self.reference,
            steps,
            inputs=self.seen.inputs,
            input_shapes=[tuple(leaf.shape[1:]) for leaf in self.leaves],
            outputs=self.seen.outputs,
            structure=self.structure,
            plan=Plan(rows, instruction_set, self.threads),
        )

    def _agrees(self, engine: Engine) -> bool:
        """Every sample must agree but those with a near tie, in another batch size than the trace's."""
        batch = tree_map(lambda leaf: _for_check(leaf) if isinstance(leaf, Tensor) else leaf, self.example)
        with torch.no_grad(), near_ties(self.reference) as ties:
            expected = tree_leaves(call_with(self.reference, batch))
        try:
            given = tree_leaves(call_with(engine, batch))  # type: ignore[arg-type]
        except RuntimeError:  # a torch stretch that holds the traced batch size in some other way
            return False
        return agree(given, expected, ties)


def _for_check(tensor: Tensor) -> Tensor:
    """Up to four samples, and the first once more: three or more, where the trace had two."""
    samples = tensor.detach()[: 2 * _BATCH]
    return torch.cat([samples, *[samples[:1]] * max(1, _BATCH + 1 - len(samples))])


def _timing_keys(lowering: Lowering) -> list[tuple[object, ...]]:
    """What the time of each operator depends on: the shapes of what it reads and writes, and its own numbers."""
    shapes = lowering.writer.shapes
    keys: list[tuple[object, ...]] = []
    for numbers in lowering.writer.operators:
        if _OPERATORS[numbers[0]] == "conv":
            keys.append((shapes[numbers[1]], numbers[2] >= 0, shapes[numbers[3]], *numbers[4:13]))
        else:
            keys.append(())
    return keys

"""Cuts a traced network into segments that run natively and segments that run in torch, in order of execution."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from sanp.engine.lowering.aten_rules import POSITIONWISE, RULES
from sanp.engine.lowering.gated import lower_gated
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.patterns import with_patterns
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.spelled_out import with_activations
from sanp.engine.lowering.units import Unit, units_of
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.lowering.writer import Writer
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.tracing.graph import Node, Trace, Value

_WITH_NEIGHBOURS = (*POSITIONWISE, "mean", "linalg_vector_norm", "norm", "addcmul", "max_unpool2d")
"""operators of which those before decide whether they can be written"""
_READ_PLACES = ("max_unpool2d",)
"""operators whose second input are whole numbers, the places that a pooling found"""


@dataclass(frozen=True)
class Segment:
    """Consecutive units that run in one place."""

    native: bool
    units: tuple[Unit, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    reasons: tuple[str, ...]
    """for a torch segment, why each unit is not native"""

    @property
    def nodes(self) -> list[Node]:
        """All nodes of its units."""
        return [node for unit in self.units for node in unit.nodes]


class Obstacles(Unsupported):
    """Units that cannot run natively among their neighbours: the index of each, and why."""

    def __init__(self, found: dict[int, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(found.values())))
        self.found = found


def cut_segments(
    trace: Trace, new_writer: Callable[[], Writer] = ProgramWriter
) -> list[tuple[Segment, Lowering | None]]:
    """The segments of a network, each native one with the lowering that has written it.

    ``new_writer`` makes the writer of each program. Raises :class:`Unsupported` if the network cannot be cut.
    """
    units = with_patterns(trace, with_activations(trace, units_of(trace)))
    if not units:
        raise Unsupported("a network that runs no operator")
    reasons = {unit.index: reason for unit in units if (reason := _obstacle(trace, unit, new_writer())) is not None}
    lowered: dict[object, Lowering] = {}

    def lowering_of(segment: Segment) -> Lowering | None:
        """A segment that an obstacle elsewhere has not changed is not written again."""
        if not segment.native:
            return None
        key = tuple(unit.index for unit in segment.units), segment.outputs
        if key not in lowered:
            lowered[key] = _lower(trace, segment, new_writer())
        return lowered[key]

    while True:
        try:
            segments = _segments(trace, units, reasons)
        except Unsupported as uncut:
            raise Unsupported("; ".join(dict.fromkeys([*reasons.values(), str(uncut)]))) from uncut
        try:
            return [(segment, lowering_of(segment)) for segment in segments]
        except Obstacles as obstacles:
            reasons |= obstacles.found


def _segments(trace: Trace, units: Sequence[Unit], reasons: Mapping[int, str]) -> list[Segment]:
    runs: list[tuple[bool, list[Unit]]] = []
    for unit in units:
        native = unit.index not in reasons
        if not runs or runs[-1][0] != native:
            runs.append((native, []))
        runs[-1][1].append(unit)
    segments: list[Segment] = []
    for native, inside in _without_trifles(runs):
        members = {unit.index for unit in inside}
        made = {value for unit in inside for value in unit.outputs}
        read = dict.fromkeys(value for unit in inside for value in unit.inputs if value not in made)
        wanted = {value for unit in units if unit.index not in members for value in unit.inputs} | set(trace.outputs)
        outputs = dict.fromkeys(value for unit in inside for value in unit.outputs if value in wanted)
        why = () if native else tuple(reasons.get(unit.index, "a segment without a convolution") for unit in inside)
        segments.append(Segment(native, tuple(inside), tuple(read), tuple(outputs), why))
    _check_cut(trace, segments)
    return segments


def _lower(trace: Trace, segment: Segment, writer: Writer) -> Lowering:
    """Writes a segment's program; raises :class:`Obstacles` with the units that cannot be written.

    What an obstacle makes is an input for the units after it, as it will be when the obstacle runs in torch: one pass
    finds them all, but for those that only another cut shows.
    """
    readers = Counter(value for unit in segment.units for value in unit.inputs)
    lowering = Lowering(trace, writer, RULES, set(segment.outputs), readers)
    found: dict[int, str] = {}
    for unit in segment.units:
        try:
            _write(lowering, unit)
        except Unsupported as reason:
            found[unit.index] = str(reason)
    for value in segment.outputs:
        maker = next(unit for unit in segment.units if value in unit.outputs)
        try:
            if maker.index not in found:
                lowering.give(value)
        except Unsupported as reason:
            found[maker.index] = str(reason)
    if found:
        raise Obstacles(found)
    return lowering


def _write(lowering: Lowering, unit: Unit) -> None:
    try:
        if isinstance(unit.module, GatedConv | FollowingConv):
            lower_gated(lowering, unit, unit.module)
        else:
            lowering.rule(unit.node)(lowering, unit.node)
    except Unsupported:
        raise
    except Exception as error:  # a rule that has never met such arguments: torch has
        said = " ".join(str(error).split())[:100]
        raise Unsupported(f"{unit.nodes[0].op} with arguments that no rule has met ({said})") from error
    lowering.note(unit.name)


def _obstacle(trace: Trace, unit: Unit, writer: Writer) -> str | None:
    """Why a unit cannot run natively even by itself; None if it can.

    None too where its neighbours decide: of an operator that may have its channels last, and of a convolution that
    follows others' gates. If such a unit cannot be written among them, that is found then, see :func:`_lower`.
    """
    given = unit.inputs if unit.nodes[0].op not in _READ_PLACES else unit.inputs[:1]
    if any(trace.dtypes[value.index] != torch.float32 for value in (*given, unit.outputs[0])):
        return "numbers that are not float32"
    samples = trace.shapes[trace.inputs[0].index][0]
    shapes = [trace.shapes[value.index] for value in (*unit.inputs, *unit.outputs)]
    others = [shape for shape in shapes if len(shape) == 0 or shape[0] not in (0, samples)]  # 0: nothing will read it
    by_pixel = unit.module is None and unit.node.base_op in POSITIONWISE
    if others and by_pixel and all(len(shape) in (2, 3) and shape[0] % samples == 0 for shape in others):
        return None
    if others:
        return "rows that are not those of the batch"
    if isinstance(unit.module, FollowingConv) or (unit.module is None and unit.node.base_op in _WITH_NEIGHBOURS):
        return None
    try:
        _write(Lowering(trace, writer, RULES, set(unit.outputs), {}), unit)
    except Unsupported as reason:
        return str(reason)
    return None


def _without_trifles(runs: list[tuple[bool, list[Unit]]]) -> list[tuple[bool, list[Unit]]]:
    """A native segment without a convolution or product is not worth copying in and out: it runs in torch."""
    merged: list[tuple[bool, list[Unit]]] = []
    for native, members in runs:
        heavy = any(node.op in ("convolution", "addmm", "mm") for unit in members for node in unit.nodes)
        stays = native and (heavy or len(runs) == 1)
        if merged and merged[-1][0] == stays:
            merged[-1][1].extend(members)
        else:
            merged.append((stays, list(members)))
    return merged


def _check_cut(trace: Trace, segments: Sequence[Segment]) -> None:
    """Raises unless every value that a segment reads is an input or an output of an earlier unit."""
    known = set(trace.inputs)
    for segment in segments:
        hidden = [value for value in segment.inputs if value not in known]
        if hidden or any(node.func is None for node in segment.nodes if not segment.native):
            raise Unsupported("torch would need what is decided inside a native layer")
        for unit in segment.units:
            if not segment.native and not known.issuperset(_node_inputs(unit)):
                raise Unsupported("torch would need what is decided inside a native layer")
            # What a gated convolution decides is its own, in torch too: a run with given decisions could not change it.
            known.update(unit.outputs if segment.native or unit.module is not None else _made(unit))


def _made(unit: Unit) -> set[Value]:
    return {value for node in unit.nodes for value in node.outputs if value is not None}


def _node_inputs(unit: Unit) -> set[Value]:
    """What the nodes of a unit read of what they have not made themselves."""
    return {value for node in unit.nodes for value in node.inputs()} - _made(unit)

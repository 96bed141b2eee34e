"""Cuts a traced network into stretches that run natively and stretches that run in torch, in order of execution."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sanp.engine.gates import Unsupported
from sanp.engine.lowering import Lowering
from sanp.engine.units import Unit, units_of
from sanp.trace import Node, Trace, Value


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


def cut(trace: Trace) -> list[Segment]:
    """The segments of a network; raises :class:`Unsupported` if it cannot be cut."""
    units = units_of(trace)
    if not units:
        raise Unsupported("a network that runs no operator")
    reasons = [_obstacle(trace, unit) for unit in units]
    runs: list[tuple[bool, list[int]]] = []
    for at, reason in enumerate(reasons):
        if not runs or runs[-1][0] != (reason is None):
            runs.append((reason is None, []))
        runs[-1][1].append(at)
    runs = _without_trifles(runs, units)
    segments: list[Segment] = []
    for native, members in runs:
        inside = [units[at] for at in members]
        made = {value for unit in inside for value in unit.outputs}
        read = dict.fromkeys(value for unit in inside for value in unit.inputs if value not in made)
        elsewhere = {value for at, unit in enumerate(units) if at not in set(members) for value in unit.inputs}
        wanted = elsewhere | set(trace.outputs)
        outputs = dict.fromkeys(value for unit in inside for value in unit.outputs if value in wanted)
        why = tuple(reasons[at] or "a stretch without a convolution" for at in members)
        segments.append(Segment(native, tuple(inside), tuple(read), tuple(outputs), () if native else why))
    _check_cut(trace, segments)
    return segments


def lower(trace: Trace, segment: Segment) -> Lowering:
    """The native program of a segment."""
    readers = Counter(value for unit in segment.units for value in unit.inputs)
    lowering = Lowering(trace, set(segment.outputs), readers)
    for unit in segment.units:
        lowering.add(unit)
    lowering.finish(list(segment.outputs))
    return lowering


def _obstacle(trace: Trace, unit: Unit) -> str | None:
    """Why a unit cannot run natively, or None."""
    try:
        probe = Lowering(trace, set(unit.outputs), {}, probing=True)
        probe.add(unit)
        for value in unit.outputs:
            if unit.module is None and unit.node.op.startswith(
                ("max_pool", "native_batch_norm", "_native", "adaptive_max")
            ):
                break  # what comes second is indices or statistics, which nothing in evaluation reads
            if len(trace.shapes[value.index]) <= 4:
                probe.native(value)
    except Unsupported as reason:
        return str(reason)
    return None


def _without_trifles(runs: list[tuple[bool, list[int]]], units: Sequence[Unit]) -> list[tuple[bool, list[int]]]:
    """A native stretch without a convolution is not worth two copies: it joins its torch neighbours."""
    merged: list[tuple[bool, list[int]]] = []
    for native, members in runs:
        heavy = any(node.op in ("convolution", "addmm", "mm") for at in members for node in units[at].nodes)
        stays = native and (heavy or len(runs) == 1)
        if merged and merged[-1][0] == stays:
            merged[-1][1].extend(members)
        else:
            merged.append((stays, list(members)))
    return merged


def _check_cut(trace: Trace, segments: Sequence[Segment]) -> None:
    """Every value that a segment reads must have been given out by an earlier one, and none of a module's insides."""
    known = set(trace.inputs)
    for segment in segments:
        hidden = [value for value in segment.inputs if value not in known]
        if hidden or any(node.func is None for node in segment.nodes if not segment.native):
            raise Unsupported("torch would need what is decided inside a native layer")
        if not segment.native and any(unit.module is not None for unit in segment.units):
            for unit in segment.units:
                if unit.module is not None and any(v not in known and v not in _made(unit) for v in _node_inputs(unit)):
                    raise Unsupported("torch would need what is decided inside a native layer")
        known.update(value for unit in segment.units for value in unit.outputs)


def _made(unit: Unit) -> set[Value]:
    return {value for node in unit.nodes for value in node.outputs if value is not None}


def _node_inputs(unit: Unit) -> set[Value]:
    return {value for node in unit.nodes for value in node.inputs()}

"""A gate in ONNX's operators: from a feature map to the list of open channels."""

import math
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.onnx.graph import OnnxGraph


@dataclass(frozen=True)
class Decision:
    """Names of what a gate gave: the numbers of the n open channels (n,), and their saliencies (1, n, 1, 1) or None.

    Without a list ``mask`` (1, C, 1, 1) is 1 for the open channels and 0 for the others, and so is the scale for these.
    """

    index: str | None
    scale: str | None
    mask: str | None = None


def decide(graph: OnnxGraph, tensor: str, channels: str | None, g: GateWeights, *, listed: bool = True) -> Decision:
    """What the gate ``g`` decides from a tensor (1, n, H, W) of live channels, with a list of the open ones or without.

    ``channels`` names the list of their numbers; None if all channels are there.
    """
    out = len(g.b2)
    saliency = graph.floats(g.b2[None])
    if len(g.b1):
        values = graph.node("Abs", tensor) if g.absolute else tensor
        descriptor = graph.node("ReduceMean", values, axes=[2, 3], keepdims=0)  # (1, n)
        w1 = graph.floats(g.w1.T)
        if channels is not None:
            w1 = graph.node("Gather", w1, channels, axis=0)
        hidden = graph.node("Relu", graph.node("Add", graph.node("MatMul", descriptor, w1), graph.floats(g.b1)))
        saliency = graph.node("Add", graph.node("MatMul", hidden, graph.floats(g.w2.T)), saliency)
    score = graph.node("Sub", saliency, graph.floats(g.threshold[None]))
    if g.group > 1:
        score = graph.node("ReduceMean", graph.reshape(score, [1, -1, g.group]), axes=[2], keepdims=0)
    opened = _top(graph, score, g.top, out // g.group) if g.top else _positive(graph, score, out // g.group)
    if g.group > 1:
        spread = graph.node("Expand", graph.reshape(opened, [1, -1, 1]), graph.ints([1, out // g.group, g.group]))
        opened = graph.reshape(spread, [1, out])
    if not listed:
        mask = graph.reshape(graph.node("Cast", opened, to=TensorProto.FLOAT), [1, -1, 1, 1])
        if not g.scales:
            return Decision(None, mask, mask)
        factor = graph.reshape(_bounded(graph, saliency, g), [1, -1, 1, 1])
        return Decision(None, graph.node("Mul", factor, mask), mask)
    index = graph.node("Squeeze", graph.node("NonZero", graph.reshape(opened, [out])), graph.ints([0]))
    scale = None
    if g.scales:
        scale = graph.reshape(_bounded(graph, graph.node("Gather", saliency, index, axis=1), g), [1, -1, 1, 1])
    return Decision(index, scale)


def _bounded(graph: OnnxGraph, saliency: str, g: GateWeights) -> str:
    return graph.node("Min", saliency, graph.floats(np.float32(g.most))) if math.isfinite(g.most) else saliency


def _positive(graph: OnnxGraph, score: str, count: int) -> str:
    """1 where a score is positive, else 0; if none is positive, 1 for the largest. ``count`` is how many there are."""
    positive = graph.node("Greater", score, graph.floats(np.float32(0)))
    counted = graph.node("ReduceMax", graph.node("Cast", positive, to=TensorProto.INT64), axes=[1], keepdims=1)
    none = graph.node("Equal", counted, graph.ints([0]))
    best = graph.node("ArgMax", score, axis=1, keepdims=1)
    is_best = graph.node("Equal", best, graph.ints(range(count)))
    return graph.node("Cast", graph.node("Or", positive, graph.node("And", none, is_best)), to=TensorProto.INT64)


def _top(graph: OnnxGraph, score: str, top: int, count: int) -> str:
    """1 for the ``top`` largest scores of ``count``, else 0."""
    values, chosen = graph.name("top"), graph.name("chosen")
    graph.nodes.append(helper.make_node("TopK", [score, graph.ints([top])], [values, chosen], axis=1))
    zeros = graph.constant(np.zeros((1, count), np.int64))
    ones = graph.constant(np.ones((1, top), np.int64))
    return graph.node("ScatterElements", zeros, chosen, ones, axis=1)

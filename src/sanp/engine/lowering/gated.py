"""Writes a gated module: the convolution, what its batch norm does, and the gate.

A batch norm may be anybody's module: what counts is which operators it ran, an activation among them.
"""

from dataclasses import replace

import numpy as np

from sanp.engine.lowering.elementwise import (
    ACTIVATION_OPERATORS,
    BATCH_NORMS,
    activation_of,
    batch_norm_of,
    constant_of,
    norm_weights,
)
from sanp.engine.lowering.gate_weights import gate_weights
from sanp.engine.lowering.known import Padded, Pending, affine
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.patterns import INSTANCE_NORM
from sanp.engine.lowering.shapes import Window, sample_shape
from sanp.engine.lowering.units import Unit
from sanp.engine.lowering.unsupported import Unsupported
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.tracing.graph import WRITTEN, ConvolutionCall, Node, Value

_MOVE_ONLY = ("constant_pad_nd", "slice", "copy", "new_empty", "new_zeros", WRITTEN, "view", "clone", "alias")
"""operators between a depthwise convolution and its input after which a channel that was zero is zero"""


def lower_gated(low: Lowering, unit: Unit, module: GatedConv | FollowingConv) -> None:
    """Writes the unit of a gated or following convolution; raises :class:`Unsupported` for one that is more."""
    if module.norm_outside:
        raise Unsupported("a gate that waits for a batch norm outside its module")
    convolutions = [node for node in unit.nodes if node.op == "convolution"]
    if len(convolutions) != 1:
        raise Unsupported("a gated module that is not one convolution of its input")
    _write_before(low, unit, module, ConvolutionCall.of(convolutions[0]).input)
    norm = next((node for node in unit.nodes if node.op == INSTANCE_NORM), None)
    if norm is not None:
        return _lower_normalised(low, unit, module, convolutions[0], norm)
    try:
        conv = _followed(low, unit, convolutions[0])
    except Unsupported:
        if isinstance(module, FollowingConv):
            raise
        return _lower_by_operators(low, unit, module, convolutions[0])
    if isinstance(module, GatedConv):
        conv = replace(conv, gate=_gate(low, unit.inputs[0], module))
        low.gated.append(module)
        low.note(unit.name)
    else:
        if conv.weight.shape[1] != 1 or not set(low.inputs) <= set(low.trace.inputs):
            raise Unsupported("a depthwise convolution that follows gates outside the native part")
        conv = replace(conv, follows=True)
    return low.define(unit.outputs[0], conv if conv.act is None else low.write(conv, conv.act))


def _lower_normalised(low: Lowering, unit: Unit, module: GatedConv | FollowingConv, node: Node, norm: Node) -> None:
    """A convolution, an instance norm, and the gate's product: the norm's statistics need the convolution unscaled."""
    after = unit.nodes[unit.nodes.index(norm) + 1 :]
    last = next((each for each in after if norm.outputs[0] in each.inputs()), None)
    plain = last is not None and last.op == "mul" and last.outputs[0] == unit.outputs[0]
    if not isinstance(module, GatedConv) or norm.args[0] != node.outputs[0] or not plain:
        raise Unsupported("a gated module that is not one convolution, an instance norm and a gate")
    gate = _gate(low, unit.inputs[0], module)
    low.gated.append(module)
    low.note(unit.name)
    made = low.write_plain(low.convolution(node))
    weights = norm_weights(norm.args[1], norm.args[2], low.shape(unit.outputs[0])[1])
    low.define(unit.outputs[0], low.writer.instance_norm(made, *weights, norm.args[3], gate))


def _lower_by_operators(low: Lowering, unit: Unit, module: GatedConv, node: Node) -> None:
    """A convolution of all channels, whatever the module does with them, and the gate's product by itself."""
    last = next(each for each in unit.nodes if unit.outputs[0] in each.outputs)
    if last.op != "mul" or not isinstance(last.args[0], Value):
        raise Unsupported("a gated module that is not one convolution, a batch norm and a gate")
    gate = _gate(low, unit.inputs[0], module)
    low.gated.append(module)
    low.note(unit.name)
    low.define(node.outputs[0], low.convolution(node))
    _write_made_from(low, unit, {unit.inputs[0], node.outputs[0]}, last.args[0])
    channels, read = low.shape(last.args[0])[1], low.native(last.args[0])
    ones, none = np.ones((channels, 1, 1, 1), np.float32), np.zeros(channels, np.float32)
    made = low.writer.conv(read, ones, none, Window(kernel=(1, 1)), groups=channels, gate=gate)
    low.define(unit.outputs[0], made)


def _write_before(low: Lowering, unit: Unit, module: GatedConv | FollowingConv, value: Value) -> None:
    """Writes what a gated module does with its input before its convolution reads it, as ``value``."""
    nodes = _write_made_from(low, unit, {unit.inputs[0]}, value)
    moves = all(node.base_op in _MOVE_ONLY or node.op.endswith(("_pad1d", "_pad2d")) for node in nodes)
    if isinstance(module, FollowingConv) and not moves:
        raise Unsupported("a depthwise convolution of something else than its module's input")


def _write_made_from(low: Lowering, unit: Unit, known: set[Value | None], wanted: Value) -> list[Node]:
    """Writes the operators of a unit that make a value from known ones; gives them in their order."""
    needed, nodes = {wanted} - known, []
    for node in reversed(unit.nodes):
        if needed.intersection(node.outputs):
            nodes.append(node)
            needed = (needed - set(node.outputs)) | (set(node.inputs()) - known)
    if needed:
        raise Unsupported("a gated module that is not one convolution of its input")
    for node in reversed(nodes):
        low.rule(node)(low, node)
    return nodes[::-1]


def _gate(low: Lowering, value: Value, module: GatedConv) -> int:
    """The gate of a module that reads this value."""
    weights, known = gate_weights(module.spm), low.known(value)
    if not isinstance(known, Padded):
        return low.writer.gate(low.native(value), weights)
    # The SPM takes its means over the zeros as well.
    pixels = np.prod(low.writer.shapes[known.base][1:]) / np.prod(sample_shape(low.shape(value))[1:])
    return low.writer.gate(known.base, replace(weights, w1=weights.w1 * np.float32(pixels)))


def _followed(low: Lowering, unit: Unit, node: Node) -> Pending:
    """The convolution of a gated module with what its batch norm does, as it was traced, up to the gate's product.

    A batch norm may be anybody's module: what counts is which operators it ran, an activation among them.
    """
    conv, value = low.convolution(node), node.outputs[0]
    for after in unit.nodes[unit.nodes.index(node) + 1 :]:
        if after.outputs[0] == unit.outputs[0]:
            if after.op != "mul" or after.args[0] != value:
                break
            return conv
        if value in after.inputs():
            conv, value = _with(low, conv, after, value), after.outputs[0]
    raise Unsupported("a gated module that is not one convolution, a batch norm and a gate")


def _with(low: Lowering, conv: Pending, node: Node, value: Value | None) -> Pending:
    """A convolution that takes in the operator that alone reads its output."""
    assert value is not None
    if node.inputs() != [value] or conv.act is not None:
        raise Unsupported(f"{node.op} between a convolution and its gate")
    if node.base_op in ACTIVATION_OPERATORS:
        return replace(conv, act=activation_of(node, low.shape(value)[1]))
    if node.base_op in ("alias", "detach", "clone"):
        return conv
    if node.base_op in BATCH_NORMS:
        scale, shift = batch_norm_of(node)
    elif node.base_op in ("add", "sub", "mul", "div"):
        scale, shift = constant_of(node, low.shape(value))
    else:
        raise Unsupported(f"{node.op} between a convolution and its gate")
    return affine(conv, scale, shift)

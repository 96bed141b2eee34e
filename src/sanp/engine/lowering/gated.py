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
from sanp.engine.lowering.shapes import sample_shape
from sanp.engine.lowering.units import Unit
from sanp.engine.lowering.unsupported import Unsupported
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.tracing.graph import ConvolutionCall, Node, Value


def lower_gated(low: Lowering, unit: Unit, module: GatedConv | FollowingConv) -> None:
    """Writes the unit of a gated or following convolution; raises :class:`Unsupported` for one that is more."""
    if module.norm_outside:
        raise Unsupported("a gate that waits for a batch norm outside its module")
    convolutions = [node for node in unit.nodes if node.op == "convolution"]
    if len(convolutions) != 1 or not _reads(low, unit, ConvolutionCall.of(convolutions[0]).input):
        raise Unsupported("a gated module that is not one convolution of its input")
    norm = next((node for node in unit.nodes if node.op == INSTANCE_NORM), None)
    if norm is not None:
        return _lower_normalised(low, unit, module, convolutions[0], norm)
    conv = _followed(low, unit, convolutions[0])
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


def _reads(low: Lowering, unit: Unit, value: Value) -> bool:
    """Whether a value is a gated module's input, or that with the zeros that the module itself puts around it."""
    if value == unit.inputs[0]:
        return True
    maker = next((node for node in unit.nodes if value in node.outputs), None)
    if maker is None or maker.op != "constant_pad_nd" or maker.args[0] != unit.inputs[0]:
        return False
    low.rule(maker)(low, maker)
    return True


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

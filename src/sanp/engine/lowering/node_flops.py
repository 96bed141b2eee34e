"""The multiply-adds of a traced operator for one batch, every channel computed: what a plan weighs its rows by."""

from math import prod

from torch import Tensor

from sanp.tracing.graph import ConvolutionCall, Node, Trace, Value


def node_flops(trace: Trace, node: Node) -> int:
    """Of a convolution or a matrix product; nothing for any other operator."""
    out = node.outputs[0] if node.outputs else None
    if out is None:
        return 0
    if node.op == "convolution":
        call = ConvolutionCall.of(node)
        weight = call.weight.shape if isinstance(call.weight, Tensor) else trace.shapes[call.weight.index]
        positions = trace.shapes[call.input.index] if call.transposed and isinstance(call.input, Value) else None
        return prod(positions if positions is not None else trace.shapes[out.index]) * prod(weight[1:])
    if node.op in ("mm", "addmm", "bmm", "baddbmm"):
        left = node.args[1 if node.op.startswith("add") or node.op.startswith("badd") else 0]
        inner = (trace.shapes[left.index] if isinstance(left, Value) else left.shape)[-1]
        return prod(trace.shapes[out.index]) * int(inner)
    return 0

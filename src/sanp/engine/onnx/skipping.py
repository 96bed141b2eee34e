"""The ONNX graph that gathers the weights of open channels for each image, so that pruned ones cost nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.segments import Segment, cut_segments
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Trace
from sanp.tracing.tracer import trace_forward

if TYPE_CHECKING:
    from sanp.engine.onnx.writer import OnnxWriter

OPSET = 17
"""the version of ONNX's operators that files are written in"""


class NotSkipping(SanpError):
    """No skipping file can be written of a network; the message says why."""


def skipping_model(network: nn.Module, x: Tensor) -> Any:
    """The model of a network, which takes inputs like ``x`` in batches of any size.

    Raises :class:`NotSkipping` for a network that the graph's operators cannot express from end to end.
    """
    from sanp.engine.onnx.writer import OnnxWriter

    trace = trace_forward(network, x[:1].expand(2, *x.shape[1:]).clone())
    try:
        segments = cut_segments(trace, OnnxWriter)
    except Unsupported as reason:
        raise NotSkipping(f"no skipping file can be written: {reason}; use dynamic=False") from reason
    segment, lowering = whole(trace, segments)
    writer = lowering.writer
    assert isinstance(writer, OnnxWriter)
    made = [segment.outputs.index(value) for value in trace.outputs]
    shapes = [list(trace.shapes[value.index][1:]) for value in trace.outputs]
    return image_by_image(writer, list(x.shape[1:]), [writer.outputs[place] for place in made], shapes)


def whole(trace: Trace, segments: Sequence[tuple[Segment, Lowering | None]]) -> tuple[Segment, Lowering]:
    """The one segment of a network that the operators can express from end to end; otherwise :class:`NotSkipping`."""
    segment, lowering = segments[0]
    if len(segments) != 1 or lowering is None or not set(trace.outputs) <= set(segment.outputs):
        reasons = "; ".join(dict.fromkeys(why for each, _ in segments for why in each.reasons))
        why = reasons or "an output that the network is given"
        raise NotSkipping(f"no skipping file can be written: {why}; use dynamic=False")
    return segment, lowering


def output_names(count: int) -> list[str]:
    """The names of so many outputs: ``output``, ``output_1`` and so on."""
    return [f"output_{place}" if place else "output" for place in range(count)]


def image_by_image(writer: "OnnxWriter", outside: list[int], made: Sequence[str], shapes: Sequence[list[int]]) -> Any:
    """A batch of inputs (N, *outside) through the written graph, one image after the other.

    ``made`` are the names of the outputs inside the graph, and ``shapes`` what each is outside, without the batch.
    """
    from onnx import TensorProto, helper

    inside, names = list(writer.shapes[0]), output_names(len(made))
    results = [f"{name}_inside" for name in names]  # a value that the network gives twice needs two names
    body = helper.make_graph(
        [*writer.operators, *(helper.make_node("Identity", [a], [b]) for a, b in zip(made, results, strict=True))],
        "one_image",
        [helper.make_tensor_value_info(writer.inputs[0], TensorProto.FLOAT, inside)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
    )
    constants = [
        *writer.constants,
        helper.make_tensor("image_shape", TensorProto.INT64, [1 + len(inside)], [-1, *inside]),
        *(
            helper.make_tensor(f"{name}_shape", TensorProto.INT64, [1 + len(shape)], [-1, *shape])
            for name, shape in zip(names, shapes, strict=True)
        ),
    ]
    stacked = [f"{name}_stacked" for name in names]
    nodes = [
        helper.make_node("Reshape", ["input", "image_shape"], ["images"]),
        helper.make_node("Scan", ["images"], stacked, body=body, num_scan_inputs=1),
        *(helper.make_node("Reshape", [a, f"{b}_shape"], [b]) for a, b in zip(stacked, names, strict=True)),
    ]
    graph = helper.make_graph(
        nodes,
        "sanp",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *outside])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape])
            for name, shape in zip(names, shapes, strict=True)
        ],
        initializer=constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="sanp")
    model.ir_version = 8
    return model

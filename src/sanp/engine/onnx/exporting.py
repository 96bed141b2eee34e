"""sanp.export: an ONNX file in which a runtime itself skips the pruned channels, checked before it is written."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sanp.core.checks import check_network, checked_path, is_installed
from sanp.core.copying import copy_of
from sanp.core.errors import SanpError
from sanp.core.files import write_atomically
from sanp.core.modules import call_with, unwrapped
from sanp.engine.agreement import agree, check_batches, near_ties
from sanp.engine.lowering.segments import cut
from sanp.engine.lowering.unsupported import Unsupported
from sanp.spm.saliency import Standardize
from sanp.tracing.tracer import trace_forward

if TYPE_CHECKING:
    from sanp.engine.onnx.writer import OnnxWriter

_OPSET = 17


def export(network: nn.Module, path: str | Path, example_input: Tensor, *, dynamic: bool = True) -> Path:
    """Writes a network as an ONNX file for any batch size, after ONNX Runtime has given the same outputs as it.

    ``example_input`` is one tensor of at least one sample, which fixes every shape but the batch size.

    With ``dynamic`` the weights of open channels are gathered for each image, so that pruned ones are never computed;
    the images of a batch go through one after the other (ONNX's Scan). Without, pruned channels are computed and
    multiplied by zero: for runtimes that refuse weights that are not constant. Needs the extra ``onnx``.
    """
    check_network(network)
    network = unwrapped(network)
    path = checked_path(path)
    for needed in ("onnx", "onnxruntime"):
        if not is_installed(needed):
            raise SanpError(f'{needed} is not installed: export needs it; pip install "sanp[onnx]"')
    import onnx

    if not isinstance(example_input, Tensor) or example_input.dim() < 2 or len(example_input) == 0:
        raise SanpError("example_input must be one tensor of at least one sample: a file has one input")
    if path.is_dir():
        raise SanpError(f"{path} is a folder: give the name of a file in it, as {path / 'pruned.onnx'}")
    if not path.parent.is_dir():
        raise SanpError(f"{path} cannot be written: the folder {path.parent} does not exist; make it first")
    network = copy_of(network).cpu().eval().requires_grad_(False)
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    x = example_input.detach().cpu().float().contiguous()
    model = _skipping(network, x) if dynamic else _masked(network, x)
    onnx.checker.check_model(model)
    _check(model, network, x)
    write_atomically(path, lambda temporary: onnx.save(model, temporary))
    return path


def _skipping(network: nn.Module, x: Tensor) -> Any:
    """The graph whose weights are gathered for each image."""
    from sanp.engine.onnx.writer import OnnxWriter

    trace = trace_forward(network, x[:1].expand(2, *x.shape[1:]).clone())
    try:
        segments = cut(trace, OnnxWriter)
    except Unsupported as reason:
        raise SanpError(f"no skipping file can be written: {reason}; use dynamic=False") from reason
    if len(segments) != 1 or segments[0][1] is None or len(trace.outputs) != 1:
        reasons = "; ".join(dict.fromkeys(why for segment, _ in segments for why in segment.reasons))
        raise SanpError(f"no skipping file can be written: {reasons or 'several outputs'}; use dynamic=False")
    writer = segments[0][1].writer
    assert isinstance(writer, OnnxWriter)
    return _image_by_image(writer, list(x.shape[1:]), list(trace.shapes[trace.outputs[0].index][1:]))


def _image_by_image(writer: "OnnxWriter", outside: list[int], shape: list[int]) -> Any:
    """A batch of inputs (N, *outside) through the written graph, one image after the other, to outputs (N, *shape)."""
    from onnx import TensorProto, helper

    inside = list(writer.shapes[0])
    body = helper.make_graph(
        writer.operators,
        "one_image",
        [helper.make_tensor_value_info(writer.inputs[0], TensorProto.FLOAT, inside)],
        [helper.make_tensor_value_info(writer.outputs[0], TensorProto.FLOAT, None)],
    )
    constants = [
        *writer.constants,
        helper.make_tensor("image_shape", TensorProto.INT64, [1 + len(inside)], [-1, *inside]),
        helper.make_tensor("output_shape", TensorProto.INT64, [1 + len(shape)], [-1, *shape]),
    ]
    nodes = [
        helper.make_node("Reshape", ["input", "image_shape"], ["images"]),
        helper.make_node("Scan", ["images"], ["results"], body=body, num_scan_inputs=1),
        helper.make_node("Reshape", ["results", "output_shape"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "sanp",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *outside])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["N", *shape])],
        initializer=constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="sanp")
    model.ir_version = 8
    return model


class _Standardized(nn.Module):
    """A standardisation as plain arithmetic: torch's exporter must know how many channels a batch norm has."""

    mean: Tensor
    scale: Tensor

    def __init__(self, fitted: Standardize) -> None:
        super().__init__()
        self.register_buffer("mean", fitted.mean)
        self.register_buffer("scale", (fitted.var + fitted.eps).rsqrt())
        self.centre = fitted.centre

    def forward(self, d: Tensor) -> Tensor:  # (N, C_in) -> (N, C_in)
        """(d - mean) / deviation + centre"""
        result: Tensor = (d - self.mean) * self.scale + self.centre
        return result


def _masked(network: nn.Module, x: Tensor) -> Any:
    """The graph that multiplies pruned channels by zero."""
    import io
    import warnings

    import onnx

    outputs = [f"output_{place}" if place else "output" for place in range(len(trace_forward(network, x[:1]).outputs))]
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Standardize):
                setattr(module, name, _Standardized(child))
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns that it will be replaced
            torch.onnx.export(
                network,
                (x[:1],),
                buffer,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=_OPSET,
                input_names=["input"],
                output_names=outputs,
                dynamic_axes={name: {0: "N"} for name in ("input", *outputs)},
            )
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")[:200]
        raise SanpError(f"torch's exporter cannot write this network ({type(error).__name__}: {first})") from error
    return onnx.load_model_from_string(buffer.getvalue())


def _check(model: Any, network: nn.Module, x: Tensor) -> None:
    """Raises if ONNX Runtime gives another result than the network on batches of several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in check_batches(x):
        with torch.no_grad(), near_ties(network) as ties:
            expected = tree_leaves(call_with(network, batch))
        try:
            given = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        except Exception as error:
            first = next(iter(str(error).splitlines()), "")[:200]
            raise SanpError(
                f"ONNX Runtime does not run it on {len(batch)} images ({first}): nothing was written"
            ) from error
        if not agree([torch.from_numpy(each) for each in given], expected, ties, len(batch)):
            raise SanpError("ONNX Runtime gives another result than the network: nothing was written")

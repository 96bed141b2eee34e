"""The ONNX graph that computes every channel and multiplies the pruned ones by zero, by torch's own exporter."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.copying import copy_of
from sanp.core.errors import SanpError
from sanp.core.modules import tensors_in
from sanp.engine.onnx.skipping import OPSET, output_names
from sanp.spm.saliency import Standardize
from sanp.tracing.tracer import trace_forward


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


class _Tensors(nn.Module):
    """A network that gives the tensors of its result, and nothing that stands beside them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The tensors of the network's result, in their order."""
        return tuple(tensors_in(self.network(x)))


@contextmanager
def _quietly() -> Iterator[None]:
    """Inside, torch's exporter neither warns that it will be replaced nor prints the whole graph when it fails."""
    printing = torch._C._jit_onnx_log
    torch._C._jit_onnx_log = lambda *_: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch._C._jit_onnx_log = printing


def masked_model(network: nn.Module, x: Tensor) -> Any:
    """The model of a network, which takes inputs like ``x`` in batches of any size."""
    import onnx

    network = copy_of(network)

    outputs = output_names(len(trace_forward(network, x[:1]).outputs))
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Standardize):
                setattr(module, name, _Standardized(child))
    buffer = io.BytesIO()
    try:
        with _quietly():
            torch.onnx.export(
                _Tensors(network),
                (x[:1],),
                buffer,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=OPSET,
                input_names=["input"],
                output_names=outputs,
                dynamic_axes={name: {0: "N"} for name in ("input", *outputs)},
            )
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")[:200]
        raise SanpError(f"torch's exporter cannot write this network ({type(error).__name__}: {first})") from error
    return onnx.load_model_from_string(buffer.getvalue())

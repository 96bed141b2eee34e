"""A dense network in other runtimes: each is a call to be timed, or the reason why there is none."""

import contextlib
import copy
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.devices import finish_work

Call = Callable[[], object]
_CALIBRATION = 64
"""images that int8's ranges are set on"""


class Missing(Exception):
    """A runtime cannot be used here; the message says why."""


def dense_calls(
    net: nn.Module,
    x: Tensor,
    images: Tensor,
    *,
    threads: int,
    wanted: tuple[str, ...] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, Call], dict[str, str]]:
    """Calls that run ``net`` on the batch ``x``, by runtime, and for the other runtimes the reason.

    ``images`` set the ranges of int8. ``wanted`` are names of :data:`RUNTIMES`; None: all of them. ``tell`` is called
    with what is being done.
    """
    calls: dict[str, Call] = {}
    reasons: dict[str, str] = {}
    model: list[bytes] = []

    def onnx() -> bytes:
        if not model:
            model.append(_exported(net, x))
        return model[0]

    for name in RUNTIMES if wanted is None else wanted:
        tell(f"preparing the dense network in {name} ...")
        try:
            with _quiet():
                call = RUNTIMES[name](net, x, images, threads, onnx)
                call()
        except Missing as reason:
            reasons[name] = str(reason)
        except ImportError as error:
            reasons[name] = f'{error.name or error} is not installed: pip install "sanp[bench]"'
        except Exception as error:  # a runtime may raise anything
            reasons[name] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:160]}"
        else:
            calls[name] = call
    return calls, reasons


def call_on(device: torch.device, net: nn.Module, x: Tensor) -> Call:
    """A call that runs a copy of ``net`` on the batch ``x`` in torch on another device, and waits for the result."""
    there, given = copy.deepcopy(net).to(device), x.to(device)

    def call() -> None:
        there(given)
        finish_work(device)

    return call


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings, logs and progress bars of other libraries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


def _exported(net: nn.Module, x: Tensor) -> bytes:
    import onnx  # noqa: F401  (the exporter needs it, and would say so less clearly)

    buffer = io.BytesIO()
    torch.onnx.export(net, (x,), buffer, dynamo=False, opset_version=17)  # type: ignore[arg-type]
    return buffer.getvalue()


def _eager(net: nn.Module, x: Tensor, images: Tensor, threads: int, onnx: Callable[[], bytes]) -> Call:
    return lambda: net(x)


def _compiled(net: nn.Module, x: Tensor, images: Tensor, threads: int, onnx: Callable[[], bytes]) -> Call:
    fused = torch.compile(net)
    return lambda: fused(x)


def _onnx_runtime(net: nn.Module, x: Tensor, images: Tensor, threads: int, onnx: Callable[[], bytes]) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(onnx(), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feed)


def _openvino(model: Any, x: Tensor, threads: int, precision: str) -> Call:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    request = openvino.compile_model(model, "CPU", settings).create_infer_request()
    return lambda: request.infer([x.numpy()], share_inputs=True)


def _read(model: bytes) -> Any:
    import openvino

    return openvino.Core().read_model(io.BytesIO(model))


def _openvino_fp32(net: nn.Module, x: Tensor, images: Tensor, threads: int, onnx: Callable[[], bytes]) -> Call:
    return _openvino(_read(onnx()), x, threads, "f32")


def _openvino_bf16(net: nn.Module, x: Tensor, images: Tensor, threads: int, onnx: Callable[[], bytes]) -> Call:
    import openvino

    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise Missing("this processor has no bf16 arithmetic")
    return _openvino(_read(onnx()), x, threads, "bf16")


def _openvino_int8(net: nn.Module, x: Tensor, images: Tensor, threads: int, onnx: Callable[[], bytes]) -> Call:
    os.environ.setdefault("NNCF_CI", "1")  # its telemetry stays off
    import nncf

    count, size = min(len(images), _CALIBRATION), len(x)
    several = images[torch.arange(max(count, size)) % len(images)]  # batches as large as the traced one
    batches = [several[first : first + size].numpy() for first in range(0, len(several) - size + 1, size)]
    quantized = nncf.quantize(_read(onnx()), nncf.Dataset(batches), subset_size=len(batches))
    return _openvino(quantized, x, threads, "f32")


RUNTIMES: dict[str, Callable[[nn.Module, Tensor, Tensor, int, Callable[[], bytes]], Call]] = {
    "torch eager": _eager,
    "torch.compile": _compiled,
    "ONNX Runtime": _onnx_runtime,
    "OpenVINO": _openvino_fp32,
    "OpenVINO bf16": _openvino_bf16,
    "OpenVINO int8": _openvino_int8,
}
FP32 = ("torch eager", "torch.compile", "ONNX Runtime", "OpenVINO")
"""those in the engine's own precision; ratios are to the fastest of them"""

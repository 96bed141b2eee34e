"""The ONNX graph of a network on bytes, which skips pruned channels or multiplies them by zero, and its check."""

from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.int8_calibration import kept_calibration
from sanp.engine.agreement import check_batches
from sanp.engine.compiled import Engine
from sanp.engine.compiling import compile
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.segments import cut_segments
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.onnx.skipping import image_by_image, whole
from sanp.engine.quantise.int8 import quantised_steps
from sanp.tracing.tracer import trace_forward

_MOST_ERROR = 0.05
"""how far a file may be from the int8 engine: root mean square, as a share of the outputs' spread; what is rounded at a
tie, or decided at one, may differ"""


def int8_reference(network: nn.Module, x: Tensor, calibration: Any) -> Engine:
    """The int8 engine of a network, which is calibrated with it; raises if the network does not run natively."""
    engine = compile(network, x, tune=False, precision="int8", calibration=calibration)
    if not engine.plan.native:
        raise SanpError(f'no int8 file can be written: {engine.plan.reasons()}; use precision="fp32"')
    return engine


def int8_model(network: nn.Module, x: Tensor, *, skips: bool) -> Any:
    """The model of a network that was calibrated, for inputs like ``x`` in batches of any size."""
    from sanp.engine.onnx.replaying import replayed

    trace = trace_forward(network, x[:1].expand(2, *x.shape[1:]).clone())
    kept = kept_calibration(network)
    assert kept is not None
    try:
        segment, lowering = whole(trace, cut_segments(trace))
        assert isinstance(lowering.writer, ProgramWriter)
        (on_bytes,) = quantised_steps([lowering], kept)
        assert on_bytes is not None
        writer = replayed(lowering.writer, *on_bytes, skips=skips)
    except Unsupported as reason:
        raise SanpError(f'no int8 file can be written: {reason}; use precision="fp32"') from reason
    made = [writer.outputs[segment.outputs.index(value)] for value in trace.outputs]
    shapes = [list(trace.shapes[value.index][1:]) for value in trace.outputs]
    return image_by_image(writer, list(x.shape[1:]), made, shapes)


def check_int8(session: Any, engine: Engine, x: Tensor) -> None:
    """Raises if ONNX Runtime gives another result than the int8 engine on some batches."""
    for batch in check_batches(x):
        wanted, _ = engine.run_forced(batch, None)
        given = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        for one, other in zip(given, wanted, strict=True):
            spread = float((other - other.mean()).square().mean())
            if float((torch.from_numpy(one) - other).square().mean()) > _MOST_ERROR**2 * max(spread, 1e-30):
                raise SanpError("ONNX Runtime gives another result than the int8 engine: nothing was written")

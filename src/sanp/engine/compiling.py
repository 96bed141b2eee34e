"""sanp.compile: checks what it is given, has the engine built, and warns of what is slow."""

import functools
import warnings
from typing import Any

import torch
from torch import nn

from sanp.core.checks import check_is_network
from sanp.core.copying import copy_of
from sanp.core.errors import SanpError, SlowWarning, unknown_name
from sanp.core.modules import unwrapped
from sanp.engine.arguments import in_order
from sanp.engine.building import EngineBuilder
from sanp.engine.compiled import Engine
from sanp.engine.library import Unavailable, native_library
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.plan import Plan
from sanp.engine.progress_bar import ProgressBar
from sanp.engine.quantise.int8 import int8_engine, wanted_calibration
from sanp.gating.cap import Cap
from sanp.gating.network import GatedNetwork

_MUCH = 0.05
"""the share of the FLOPs that may run in torch without a word"""
PRECISIONS = ("fp32", "int8")
"""what convolutions are computed in"""


def compile(
    network: nn.Module,
    example_input: Any,
    *,
    threads: int = 1,
    tune: bool = True,
    precision: str = "fp32",
    calibration: Any = None,
) -> Engine:
    """Compiles a network for the CPU: the engine gives the same outputs, and never computes a pruned channel.

    ``network`` is a gated network, or any other. ``example_input`` is a tensor, a tuple of arguments or a dict of
    keyword arguments that its forward takes. It fixes every shape but the batch size, for which any number will do
    later; algorithms are timed with as many samples as it has, up to four. ``threads`` is how many threads a call uses.

    ``tune=False`` takes the algorithm that is usually the fastest for each convolution, without timing any.

    ``precision="int8"`` computes convolutions on bytes: weights have a scale for each output channel, inputs have one
    range. ``calibration`` has the samples that the ranges are found from, some hundred training images: in the form of
    ``example_input``, or a loader, whose first batches are taken, without their labels. The network keeps its ranges,
    also in a file of :func:`sanp.save`, so that later calls need no calibration. Outputs then differ from the
    network's; ``plan`` of the engine says by how much, which layers stay in fp32 and why, and a :class:`LossWarning` is
    given if it is much.

    What the native part does not know runs in torch; ``plan`` of the engine says what runs where and why, and a warning
    is given where that is more than a twentieth of the FLOPs. Where compiling takes more than two seconds, the terminal
    shows a progress bar. Later changes of ``network`` do not reach the engine.
    """
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= 1024:
        raise SanpError(f"threads={threads!r} was given: wanted is a number from 1 to 1024")
    check_precision(precision, calibration)
    network = unwrapped(network)
    _check_network(network)
    reference = copy_of(network).eval().requires_grad_(False)
    reference.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    cap = _without_cap(reference)
    with torch.autocast("cpu", enabled=False), ProgressBar() as bar:  # the engine has a number format of its own
        builder = EngineBuilder(reference, in_order(reference, example_input), threads, tune, bar)
        try:
            native_library()
        except Unavailable as reason:
            _warn_once(str(reason))
            if precision == "int8" and calibration is None:
                wanted_calibration(network)
            return builder.in_torch(f"no native library: {reason}", cap)
        try:
            engine = builder.build()
            if precision == "int8":
                engine = int8_engine(builder.quantisation(engine, network), calibration)
            engine.obey(cap)
        except Unsupported as reason:
            engine = builder.in_torch(str(reason), cap)
    _warn_of_torch(engine.plan)
    return engine


def check_precision(precision: str, calibration: object) -> None:
    """Raises an error for a precision that there is not, or a calibration that it does not need."""
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    if precision == "fp32" and calibration is not None:
        raise SanpError('calibration was given for precision="fp32", which needs none: say precision="int8"')


def _without_cap(reference: nn.Module) -> Cap | None:
    """Takes the cap off a network and returns it: programs are written and compared without."""
    cap = reference.cap if isinstance(reference, GatedNetwork) else None
    if isinstance(reference, GatedNetwork):
        reference.cap = None
    return cap


def _warn_of_torch(plan: Plan) -> None:
    if plan.native_share < 1 - _MUCH:
        warnings.warn(
            f"sanp.compile runs {1 - plan.native_share:.0%} of this network's FLOPs in torch, which skips nothing: "
            f"{plan.reasons()}. print(engine.plan) has every operator",
            SlowWarning,
            stacklevel=3,
        )


@functools.cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"sanp.compile runs in torch and skips nothing: {reason}", stacklevel=3)


def _check_network(network: nn.Module) -> None:
    check_is_network(network)
    devices = {str(parameter.device) for parameter in network.parameters()} - {"cpu"}
    if devices:
        raise SanpError(
            f"the network is on {', '.join(sorted(devices))}: a compiled network runs on the CPU; use .cpu()"
        )

"""sanp.export: an ONNX file in which a runtime itself skips the pruned channels, checked before it is written."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sanp.core.checks import check_is_network, checked_path, is_installed
from sanp.core.copying import copy_of
from sanp.core.errors import SanpError
from sanp.core.files import write_atomically
from sanp.core.modules import call_with, tensors_in, unwrapped
from sanp.engine.agreement import agree, check_batches, near_ties
from sanp.engine.compiled import Engine
from sanp.engine.compiling import check_precision
from sanp.engine.onnx.exported import ExportedFile
from sanp.engine.onnx.int8 import check_int8, int8_model, int8_reference
from sanp.engine.onnx.masked import masked_model
from sanp.engine.onnx.skipping import NotSkipping, skipping_model
from sanp.gating.network import GatedNetwork
from sanp.tracing.tracer import trace_forward

_SECONDS = 0.5
"""how long each of two forms is timed, and at least five times"""


def export(
    network: nn.Module,
    path: str | Path,
    example_input: Tensor,
    *,
    dynamic: bool | Literal["auto"] = "auto",
    precision: str = "fp32",
    calibration: Any = None,
) -> ExportedFile:
    """Writes a network as an ONNX file for any batch size, after ONNX Runtime has given the same outputs as it.

    ``example_input`` is one tensor of at least one sample, which fixes every shape but the batch size.

    With ``dynamic=True`` the weights of open channels are gathered for each image, so that pruned ones are never
    computed; the images of a batch go through one after the other (ONNX's Scan). With ``dynamic=False`` pruned
    channels are computed and multiplied by zero: for runtimes that refuse weights that are not constant. With
    ``"auto"`` both are timed in ONNX Runtime on the example's first image, one thread, and the faster one is written:
    in small networks gathering takes longer than it saves.

    ``precision="int8"`` writes convolutions on bytes (ConvInteger), with the ranges of ``calibration`` or of an earlier
    one that the network keeps, as :func:`sanp.compile` takes them; the file is compared with the int8 engine.

    The path that it gives knows which form was written (``skips``) and why (``why``); the file holds both in its
    metadata, as ``sanp.form`` and ``sanp.why``. Needs the extra ``onnx``.
    """
    check_is_network(network)
    network, path = unwrapped(network), checked_path(path)
    _check_wanted(network, path, example_input, dynamic)
    check_precision(precision, calibration)
    import onnx

    x = example_input.detach().cpu().float().contiguous()
    engine = int8_reference(network, x, calibration) if precision == "int8" else None
    network = copy_of(network).cpu().eval().requires_grad_(False)
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    _check_control_flow(network, x)
    forms = _Forms(network, x, engine)
    model, skips, why = forms.faster() if dynamic == "auto" else forms.wanted(bool(dynamic))
    for key, said in (("sanp.form", "skipping" if skips else "masked"), ("sanp.why", why)):
        model.metadata_props.add(key=key, value=said)
    write_atomically(path, lambda temporary: onnx.save(model, temporary))
    return ExportedFile(path).with_reason(skips, why)


def _check_wanted(network: nn.Module, path: Path, example_input: object, dynamic: object) -> None:
    """Raises an error if no file can be written of a network to this path, for this input, in this form."""
    if dynamic not in (True, False, "auto"):
        raise SanpError(f"dynamic={dynamic!r} was given: wanted is True, False or 'auto'")
    for needed in ("onnx", "onnxruntime"):
        if not is_installed(needed):
            raise SanpError(f'{needed} is not installed: export needs it; pip install "sanp[onnx]"')
    if not isinstance(example_input, Tensor) or example_input.dim() < 2 or len(example_input) == 0:
        raise SanpError("example_input must be one tensor of at least one sample: a file has one input")
    if isinstance(network, GatedNetwork) and network.cap is not None:
        raise SanpError("no file can keep a cap (max_flops): take it away with set_max_flops(None), then export")
    if path.is_dir():
        raise SanpError(f"{path} is a folder: give the name of a file in it, as {path / 'pruned.onnx'}")
    if not path.parent.is_dir():
        raise SanpError(f"{path} cannot be written: the folder {path.parent} does not exist; make it first")


def _check_control_flow(network: nn.Module, x: Tensor) -> None:
    looked = trace_forward(network, x[:1]).read_back
    if looked:
        raise SanpError(
            f"no file can be written: numbers of its tensors go to Python ({', '.join(dict.fromkeys(looked))}), and "
            "another image may take another way"
        )


@dataclass(frozen=True)
class _Forms:
    """The two forms of a network, each checked in ONNX Runtime; a model comes with whether it skips, and why."""

    network: nn.Module
    x: Tensor
    engine: Engine | None
    """its int8 engine, if the file is to be on bytes"""

    def checked(self, skips: bool) -> Any:
        """The model of one form."""
        network, x, engine = self.network, self.x, self.engine
        if engine is not None:
            model = int8_model(network, x, skips=skips)
            _check(model, x, lambda session: check_int8(session, engine, x))
            return model
        model = skipping_model(network, x) if skips else masked_model(network, x)
        _check(model, x, lambda session: _check_fp32(session, network, x))
        return model

    def wanted(self, skips: bool) -> tuple[Any, bool, str]:
        """The form that was asked for."""
        return self.checked(skips), skips, f"dynamic={skips} was given"

    def faster(self) -> tuple[Any, bool, str]:
        """The form that is faster in ONNX Runtime."""
        try:
            skipping = self.checked(True)
        except SanpError as refused:
            why = str(refused) if isinstance(refused, NotSkipping) else f"no skipping file: {refused}"
            return self.checked(False), False, why
        try:
            masked = self.checked(False)
        except SanpError as refused:
            return skipping, True, f"no masked file: {refused}"
        skipped, dense = _seconds([skipping, masked], self.x[:1])
        times = f"{1e3 * skipped:.2f} ms an image that skips, {1e3 * dense:.2f} ms one that computes every channel"
        return (skipping, True, times) if skipped < dense else (masked, False, times)


def _seconds(models: Sequence[Any], x: Tensor) -> list[float]:
    """The median time of a call of each model in ONNX Runtime with one thread, the models in turn."""
    sessions = [_session(model, threads=1) for model in models]
    given = {sessions[0].get_inputs()[0].name: x.numpy()}
    taken: list[list[float]] = [[] for _ in sessions]
    end = time.perf_counter() + _SECONDS * len(sessions)
    while len(taken[0]) < 6 or time.perf_counter() < end:
        for session, times in zip(sessions, taken, strict=True):
            start = time.perf_counter()
            session.run(None, given)
            times.append(time.perf_counter() - start)
    return [median(times[1:]) for times in taken]  # the first call prepares


def _session(model: Any, threads: int = 0) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _check(model: Any, x: Tensor, compare: Callable[[Any], None]) -> None:
    """Raises if a model is not sound, or does not run on some batches, or ``compare`` finds its session wrong."""
    import onnx

    try:
        onnx.checker.check_model(model)
        session = _session(model)
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")[:200]
        raise SanpError(f"ONNX Runtime does not load it ({first}): nothing was written") from error
    for batch in check_batches(x):
        try:
            session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        except Exception as error:
            first = next(iter(str(error).splitlines()), "")[:200]
            raise SanpError(
                f"ONNX Runtime does not run it on {len(batch)} images ({first}): nothing was written"
            ) from error
    compare(session)


def _check_fp32(session: Any, network: nn.Module, x: Tensor) -> None:
    """Raises if ONNX Runtime gives another result than the network on some batches."""
    for batch in check_batches(x):
        with torch.no_grad(), near_ties(network) as ties:
            expected = tensors_in(call_with(network, batch))
        given = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        if not agree([torch.from_numpy(each) for each in given], expected, ties, len(batch)):
            raise SanpError("ONNX Runtime gives another result than the network: nothing was written")

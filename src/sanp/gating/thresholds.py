"""Calibrates the thresholds of all layers together, so that the mean FLOPs of given images meet a budget.

Top-k gates have no threshold; for them k is changed. The *level* of an SPM stands for either (see spm/binarize.py).
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sanp.core.batch_checks import bad_batch_explained
from sanp.core.bisection import nearest_tried
from sanp.core.checks import check_kind, check_many
from sanp.core.errors import SanpError
from sanp.core.later import later
from sanp.core.modules import call_with, evaluating, placed_for, tensors_in
from sanp.gating.accounting import Accounted
from sanp.gating.compiled_search import calibrate_compiled
from sanp.gating.dial import Dial, measured_dial, set_level
from sanp.gating.level_search import FAR, levels_between, tried_levels
from sanp.spm.recording import decisions_of, record
from sanp.tracing.topology import module_path

if TYPE_CHECKING:
    from sanp.gating.network import GatedNetwork


def batches_of(images: Tensor | Iterable[Any], inputs: int = 1, size: int = 250) -> list[Any]:
    """Batches of what the network takes, without labels: tensors, or tuples or dicts if it has several inputs.

    ``images`` is a tensor, or an iterable of batches that may have labels after the inputs. ``inputs`` is how many
    inputs the network takes. ``size`` is the batch size into which a tensor is split.
    """
    if isinstance(images, Tensor):
        return list(images.split(size))
    check_many("images", images, "a tensor, or batches of one")
    return [_inputs_of(batch, inputs) for batch in images]


def _inputs_of(batch: Any, inputs: int) -> Any:
    if isinstance(batch, tuple | list) and batch:
        batch = batch[0] if inputs == 1 else tuple(batch[:inputs])
    if inputs == 1 or not isinstance(batch, tuple | dict):
        check_kind("a batch", batch, Tensor, "a tensor of images")
    return batch


@torch.no_grad()
def kept_on(network: nn.Module, batches: list[Any]) -> float:
    """The share of the dense FLOPs that a network with gates computes for these batches, as a mean over the samples."""
    assert isinstance(network, Accounted)
    total, count = 0.0, 0
    for x in batches:
        with record(network) as gates:
            call_with(network, x)
        flops = network.cost.per_sample(decisions_of(gates))
        total, count = total + float(flops.sum()), count + len(flops)
    return total / count / network.cost.dense_flops


def kept_evaluating(network: "GatedNetwork", batches: list[Any]) -> float:
    """The share of the dense FLOPs that evaluation computes for these batches; by the engine where that is faster."""
    found: float | None = later("compiled kept")(network, batches)
    if found is not None:
        return found
    with evaluating(network):
        return kept_on(network, [placed_for(network, batch) for batch in batches])


def calibrate_thresholds(
    network: "GatedNetwork", kept: float, images: Tensor | Iterable[Any], steps: int = 20, *, compiled: bool = False
) -> float:
    """Sets the level of all layers so that ``kept``, a share of the dense FLOPs, is computed for these images.

    All layers get the same level, at most ``steps`` of which are tried. If none comes near, single layers are opened.
    ``images`` is a tensor or batches, see :func:`batches_of`. With ``compiled`` the engine finds the level where that
    takes less time. Returns the share that was reached.
    """
    batches = _checked_batches(network, images)
    spms = [layer.spm for layer in network.layers.values()]

    def kept_at(level: float) -> float:
        set_level(network, level)
        return kept_on(network, batches)

    told = bad_batch_explained(network, batches[0], None) if isinstance(batches[0], Tensor) else nullcontext()
    with told, evaluating(network), _finite_outputs(network, batches[0]) as checked:
        generator = torch.Generator().manual_seed(0)
        for spm in spms:
            spm.saliency.wake(generator)
        quickly = calibrate_compiled(network, kept, batches) if compiled else None
        if quickly is not None:
            checked.append(True)
            return quickly
        same = any(spm.binarize.same_in_all_layers for spm in spms)
        bounded = all(spm.binarize.level_is_saliency for spm in spms)
        bounds = _saliencies_between(network, batches[0]) if bounded else (-math.inf, math.inf)
        tried = tried_levels(kept_at, kept, spms[0].level, steps, bounds)
        near = nearest_tried(tried, kept)
        if abs(tried[near] - kept) > FAR and not same:
            reached = _open_one_by_one(network, batches, kept, tried, kept_at)
            if abs(reached - kept) < abs(tried[near] - kept):
                return reached
        return kept_at(near)


@contextmanager
def _finite_outputs(network: "GatedNetwork", batch: Any) -> Iterator[list[bool]]:
    """At the end, an error if the network puts out NaN or infinity for a batch; then its gates are as they were.

    Gives a list: what is put into it says that the outputs were seen already.
    """
    before = [(layer.spm, layer.spm.level, copy.deepcopy(layer.spm.state_dict())) for layer in network.layers.values()]
    checked: list[bool] = []
    yield checked
    if checked:
        return
    with torch.no_grad():
        outputs = [out for out in tensors_in(call_with(network, batch)) if out.is_floating_point()]
    if all(bool(out.isfinite().all()) for out in outputs):
        return
    for spm, level, state in before:
        spm.load_state_dict(state)
        spm.level = level
    raise SanpError(
        "with this budget the network puts out NaN or infinity for the images: saliencies that were never trained can "
        "grow from layer to layer; train first (sanp.fit, or a loop with sanp.Budget), then set the budget"
    )


def calibrate_dial(network: "GatedNetwork", low: float, high: float, images: Tensor | Iterable[Any]) -> Dial:
    """The dial of a network that was trained for the shares ``low`` to ``high`` of the dense FLOPs.

    The costs are measured on ``images``, a tensor or batches, see :func:`batches_of`. The network is left at ``low``.
    """
    batches = _checked_batches(network, images)
    found: dict[float, float] = {}

    def kept_at(level: float) -> float:
        if level not in found:
            set_level(network, level)
            found[level] = kept_on(network, batches)
        return found[level]

    with evaluating(network):
        start = float(next(iter(network.layers.values())).spm.level)
        ends: list[tuple[float, float]] = []
        for kept in (low, high):
            tried = tried_levels(kept_at, kept, start, 12, _saliencies_between(network, batches[0]))
            start = nearest_tried(tried, kept)
            ends.append((start, tried[start]))
        dial = measured_dial(kept_at, ends[0], ends[1])
    set_level(network, dial.threshold(low))
    return dial


def images_given(images: Tensor | Iterable[Any] | None) -> Tensor | Iterable[Any]:
    """The images; an error if there are none."""
    if images is None:
        raise SanpError(
            "set_budget was given no images: give some of the training images, a few hundred serve; only a network "
            'that was trained for a range of budgets (budget="20%..60%") needs none, within its range'
        )
    return images


def _checked_batches(network: "GatedNetwork", images: Tensor | Iterable[Any]) -> list[Any]:
    """The batches of ``images``; an error if they cannot set thresholds."""
    batches = [placed_for(network, batch) for batch in batches_of(images, max(1, len(network.origin.input_shapes)))]
    tensors = tensors_in(batches)
    if not batches or not all(tensor.numel() for tensor in tensors):
        raise SanpError("set_budget was given no images: give some of the training images, a few hundred serve")
    if not network.layers:
        raise SanpError("this network has no gated layer, so its cost cannot be changed")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise SanpError("the images to set the budget on hold NaN or infinity: give others")
    return batches


def _open_one_by_one(
    network: "GatedNetwork",
    batches: list[Any],
    kept: float,
    tried: dict[float, float],
    kept_at: Callable[[float], float],
) -> float:
    """Starts from the level nearest below the budget and opens single layers, as far as the budget allows.

    In a layer that treats all images alike, gates open for all images at once. Then it may be that no common level
    comes near to the budget.
    """
    closed = min((level for level, share in tried.items() if share <= kept), default=max(tried))
    opened = min(tried) - 1  # saliencies are of the order of 1
    reached = kept_at(closed)
    for layer in network.layers.values():
        layer.spm.level = opened
        now = kept_on(network, batches)
        if now <= kept:
            reached = now
        else:
            layer.spm.level = closed
    return float(reached)


@torch.no_grad()
def _saliencies_between(network: "GatedNetwork", batch: Any) -> tuple[float, float]:
    """Levels that open every channel, and that close all but one, for the saliencies of this batch."""
    with record(network) as gates:
        call_with(network, batch)
    spms = {name: network.layers[module_path(name)].spm for name in gates}
    return levels_between([spms[name].score(made) + spms[name].level for name, made in gates.items()])

"""Measures a network: its accuracy, the FLOPs of each image, and how often each channel is pruned."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sanp.core.batch_checks import bad_batch_explained, described, input_and_target, why_not_labels
from sanp.core.checks import check_is_network, check_many
from sanp.core.errors import SanpError
from sanp.core.modules import evaluating, unwrapped
from sanp.core.outputs import logits_of
from sanp.gating.accounting import Accounted, Accounting, FixedCost
from sanp.gating.cost import CostModel, Decisions, dense_flops, total
from sanp.gating.count import ungated_cost
from sanp.gating.flops import human
from sanp.spm.recording import record
from sanp.tracing.topology import Layer
from sanp.training.display import counted
from sanp.training.precision import Format


@dataclass(frozen=True, kw_only=True)
class LayerReport:
    """One convolution, measured over all images: how much of it is computed, and its channels by type (figure 3)."""

    name: str
    channels: int
    """number of its output channels"""
    kept: float
    """share of its channels that is computed, as a mean over the images"""
    never: int
    """number of channels that are never pruned"""
    sometimes: int
    """number of channels that are pruned for some images"""
    always: int
    """number of channels that are always pruned"""
    flops: float
    """mean over the images"""
    dense_flops: int
    """with all channels computed"""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Report:
    """The results of an evaluation. FLOPs are multiply-adds of the convolutions for one image."""

    accuracy: float
    flops: float
    """mean over the images"""
    paper_flops: float
    """mean over the images by the paper's count, which is too low after additions (CostModel.paper_per_sample)"""
    dense_flops: int
    """with all channels computed"""
    overhead_flops: int
    """what the SPMs add, or another way to decide"""
    per_sample: np.ndarray[Any, np.dtype[np.float64]]
    """FLOPs of each image, in the loader's order"""
    layers: tuple[LayerReport, ...]
    confusion: np.ndarray[Any, np.dtype[np.int64]]
    """(classes, classes): the number of images by true class, then by predicted class"""

    @property
    def error(self) -> float:
        """Share of the images that are classified wrongly."""
        return 1 - self.accuracy

    @property
    def kept(self) -> float:
        """Share of the dense FLOPs that is computed."""
        return self.flops / self.dense_flops

    @property
    def pruned(self) -> float:
        """Share of the dense FLOPs that is saved."""
        return 1 - self.kept

    def __repr__(self) -> str:
        images = len(self.per_sample)
        return f"Report({images} images: accuracy {self.accuracy:.2%}, {self.kept:.2%} of the dense FLOPs)"

    def __str__(self) -> str:
        return report_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return {
            "accuracy": self.accuracy,
            "error": self.error,
            "flops": self.flops,
            "paper_flops": self.paper_flops,
            "dense_flops": self.dense_flops,
            "kept": self.kept,
            "pruned": self.pruned,
            "overhead_flops": self.overhead_flops,
            "per_sample": self.per_sample.tolist(),
            "layers": [asdict(layer) for layer in self.layers],
            "confusion": self.confusion.tolist(),
        }


def report_text(report: Report, most: int | None = 24) -> str:
    """A report as a table of at most 80 columns: accuracy, FLOPs, and what is left of the first ``most`` layers."""
    deciding = f"; deciding adds {human(report.overhead_flops)}" if report.overhead_flops else ""
    lines = [
        f"accuracy  {report.accuracy:.2%} of {len(report.per_sample)} images",
        f"FLOPs     {human(report.flops)} an image, {report.kept:.2%} of {human(report.dense_flops)} dense{deciding}",
        "",
        f"{'layer':<32} {'channels':>8} {'kept':>6} {'always':>7} {'at times':>8} {'never':>6}  FLOPs",
    ]
    for layer in report.layers[:most]:
        name = layer.name if len(layer.name) <= 32 else f"…{layer.name[-31:]}"
        counts = f"{layer.never:>7} {layer.sometimes:>8} {layer.always:>6}"
        lines.append(f"{name:<32} {layer.channels:>8} {layer.kept:>6.1%} {counts}  {human(layer.flops)}")
    if most is not None and len(report.layers) > most:
        lines.append(f"and {len(report.layers) - most} layers more")
    return "\n".join(lines)


def evaluate(
    network: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    precision: str = "fp32",
    progress: bool = True,
) -> Report:
    """Runs a classifier, pruned or not, over the loader's batches in evaluation mode and returns what it measured.

    ``network`` gives logits (N, classes), or (N, classes, ...) for targets (N, ...) as in segmentation, alone, called
    ``logits`` in an object or dict, or first of a tuple. It may give several outputs for an image, for example one for
    each crop; the accuracy is then that of the outputs, and the FLOPs are still those of an image. ``loader`` gives
    batches of images and labels. ``precision`` is fp32, bf16 or auto. ``progress`` shows in a terminal how far it is,
    if it takes over a second.
    """
    check_is_network(network)
    check_many("loader", loader, "batches of images and labels")
    bare = unwrapped(network)
    tally: _Tally | None = None
    with evaluating(network), torch.no_grad():
        format = Format(network, precision, exact=True)
        for batch in counted(loader, "evaluating") if progress else loader:
            x, y = input_and_target(batch)
            if not isinstance(y, Tensor):
                raise SanpError(f"the loader gave {described(y)} as labels: give a tensor, one class number an image")
            x, y = format.place(x), y.to(format.device)
            if tally is None:
                tally = _Tally(_accounting(bare, x[:1]))
            with bad_batch_explained(network, x, y), record(network) as gates, format.autocast():
                output = network(x)
            decisions = {name: gate.decision for name, gate in gates.items()}
            tally.add(logits_of(output), y, decisions, images=len(x))
    if tally is None:
        raise SanpError("the loader to evaluate on is empty: give at least one batch")
    return tally.report(bare.overhead_flops if isinstance(bare, Accounted) else 0)


def _accounting(network: nn.Module, example: Tensor) -> Accounting:
    """Counts the FLOPs of the network: its own cost model, or a plain count if it has no gates."""
    cost = network.cost if isinstance(network, Accounted) else ungated_cost(network, example)
    return FixedCost(cost, {}, {}) if isinstance(cost, CostModel) and not cost.gates else cost


def _by_image(entries: Tensor, images: int) -> Tensor:
    """The mean over the entries of each image (images, ...); a network may make several of an image, such as crops."""
    if entries.dim() == 0 or len(entries) == 1:
        return entries.reshape(1, *entries.shape[1:]).expand(images, *entries.shape[1:])
    if len(entries) % images:
        raise SanpError(
            f"the gates decided for {len(entries)} rows, no multiple of the {images} images: give batches whose images "
            "take as many rows each"
        )
    return entries.reshape(images, -1, *entries.shape[1:]).mean(1)


class _Tally:
    """The sums of all measurements over the batches."""

    def __init__(self, cost: Accounting) -> None:
        self.cost = cost
        self.open: dict[str, Tensor] = {}
        self.layer_flops: dict[str, float] = {}
        self.per_sample: list[Tensor] = []
        self.paper = 0.0
        self.confusion: Tensor | None = None

    def add(self, logits: Tensor, y: Tensor, decisions: Decisions, images: int) -> None:
        """Adds one batch: logits, labels ``y``, the decisions of the gates, and the number of images."""
        if not isinstance(logits, Tensor) or logits.dim() < 2:
            raise SanpError(
                f"the network gives {described(logits)}: evaluate measures classifiers, which give (N, classes)"
            )
        if logits.dim() > 2 and y.shape == (*logits.shape[:1], *logits.shape[2:]):
            logits, y = logits.movedim(1, -1).flatten(0, -2), y.flatten()  # a class for each pixel
        elif logits.dim() > 2:
            raise SanpError(
                f"the network gives {described(logits)} for targets {described(y)}: a map of (N, classes, ...) wants "
                "a class for each of its places, (N, ...)"
            )
        count, classes = logits.shape
        if (why := why_not_labels(y, count, classes)) is not None:
            raise SanpError(why)
        if not bool(torch.isfinite(logits).all()):
            raise SanpError("the network's output is not finite: check the images for NaN, or the network's training")
        cells = torch.bincount(y * classes + logits.argmax(1), minlength=classes**2).reshape(classes, classes)
        self.confusion = cells if self.confusion is None else self.confusion + cells
        exact = {name: decision.double() for name, decision in decisions.items()}
        for name, opened in self.cost.open_outputs(exact).items():
            self.open[name] = self.open.get(name, 0) + _by_image(opened, images).sum(0)
        each = self.cost.per_layer(exact)
        for name, flops in each.items():
            self.layer_flops[name] = self.layer_flops.get(name, 0.0) + float(_by_image(flops, images).sum())
        self.per_sample.append(_by_image(total(each), images))
        self.paper += float(_by_image(self.cost.paper_per_sample(exact), images).sum())

    def report(self, overhead: int) -> Report:
        """The report of all batches; ``overhead`` are the FLOPs of the decisions for one image."""
        assert self.confusion is not None
        per_sample = torch.cat(self.per_sample).cpu()
        count = len(per_sample)
        return Report(
            accuracy=float(self.confusion.diagonal().sum()) / int(self.confusion.sum()),
            flops=float(per_sample.mean()),
            paper_flops=self.paper / count,
            dense_flops=self.cost.dense_flops,
            overhead_flops=overhead,
            per_sample=per_sample.numpy(),
            layers=tuple(self._layer(layer, count) for layer in self.cost.layers),
            confusion=self.confusion.cpu().numpy(),
        )

    def _layer(self, layer: Layer, count: int) -> LayerReport:
        opened = self.open.get(layer.name)
        if opened is None:
            opened = torch.full((layer.out_channels,), float(count))
        never, always = int((opened == count).sum()), int((opened == 0).sum())
        return LayerReport(
            name=layer.name,
            channels=layer.out_channels,
            kept=float(opened.mean()) / count,
            never=never,
            sometimes=layer.out_channels - never - always,
            always=always,
            flops=self.layer_flops[layer.name] / count,
            dense_flops=dense_flops(layer),
        )


@dataclass(frozen=True)
class Seen:
    """The results of one forward in evaluation mode."""

    probabilities: Tensor
    """(N, K): of each class"""
    flops: Tensor
    """(N,): of each image"""
    open: Mapping[str, Tensor]
    """layer name to (N, C_out): the channels that were computed; layers that are always dense are left out"""


class Onlooker:
    """Runs a classifier and reports the probabilities, FLOPs and open channels of each image.

    ``network`` may be pruned or not; ``example`` is an input for it.
    """

    def __init__(self, network: nn.Module, example: Tensor) -> None:
        self.network = network
        self.cost: Accounting
        if isinstance(network, Accounted):
            self.cost = network.cost
        else:
            self.cost = FixedCost(ungated_cost(network, example), {}, {})

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Seen:
        """Runs the network on normalised images (N, C, H, W)."""
        with evaluating(self.network), record(self.network) as gates:
            probabilities = self.network(x).float().softmax(1)
        decisions = {name: gate.decision.double() for name, gate in gates.items()}
        opened = {name: mask.expand(len(x), -1) for name, mask in self.cost.open_outputs(decisions).items()}
        return Seen(probabilities, self.cost.per_sample(decisions).expand(len(x)), opened)

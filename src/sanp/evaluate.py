"""Measures a network: how often it is right, what each image costs, and which channels it prunes how often."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sanp.accounting import Accounted, Accounting, FixedCost
from sanp.batch import describe, explained, pair, why_not_labels
from sanp.checked import check_many, check_network
from sanp.cost import CostModel, Decisions, dense_flops
from sanp.errors import SanpError
from sanp.gate import ungated_cost
from sanp.precision import Format
from sanp.record import record
from sanp.topology import Layer
from sanp.trace import evaluating


@dataclass(frozen=True, kw_only=True)
class LayerReport:
    """One convolution over all images: how much of it is computed, and its channels by type (paper, figure 3)."""

    name: str
    channels: int
    kept: float
    """mean share of its channels that is computed"""
    never: int
    """channels that are never pruned"""
    sometimes: int
    """channels that are pruned for some images"""
    always: int
    """channels that are always pruned"""
    flops: float
    dense_flops: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """What an evaluation found; FLOPs are multiply-adds of the convolutions, for one image."""

    accuracy: float
    flops: float
    """mean over the images"""
    paper_flops: float
    """mean by the paper's own count, which ignores unions at additions"""
    dense_flops: int
    overhead_flops: int
    """what the SPMs add"""
    per_sample: np.ndarray[Any, np.dtype[np.float64]]
    """FLOPs of each image, in the loader's order"""
    layers: tuple[LayerReport, ...]
    confusion: np.ndarray[Any, np.dtype[np.int64]]
    """images by true class (rows) and predicted class (columns)"""

    @property
    def error(self) -> float:
        """Share of images classified wrongly."""
        return 1 - self.accuracy

    @property
    def kept(self) -> float:
        """Share of the dense FLOPs that is computed."""
        return self.flops / self.dense_flops

    @property
    def pruned(self) -> float:
        """Share of the dense FLOPs that is saved."""
        return 1 - self.kept

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


def evaluate(network: nn.Module, loader: Iterable[tuple[Tensor, Tensor]], *, precision: str = "fp32") -> Report:
    """Runs a classifier, pruned or ordinary, over the loader's batches with hard gates and no noise."""
    check_network(network)
    check_many("loader", loader, "batches of images and labels")
    tally: _Tally | None = None
    with evaluating(network), torch.no_grad():
        format = Format(network, precision, exact=True)
        for batch in loader:
            x, y = pair(batch)
            x, y = format.place(x), y.to(format.device)
            if tally is None:
                tally = _Tally(_accounting(network, x[:1]))
            with explained(network, x, y), record(network) as gates, format.autocast():
                logits = network(x)
            tally.add(logits, y, {name: gate.decision for name, gate in gates.items()})
    if tally is None:
        raise SanpError("the loader to evaluate on is empty: give at least one batch")
    return tally.report(network.overhead_flops if isinstance(network, Accounted) else 0)


def _accounting(network: nn.Module, example: Tensor) -> Accounting:
    """What knows the network's cost: the network itself, or without a gate its plain count."""
    cost = network.cost if isinstance(network, Accounted) else ungated_cost(network, example)
    return FixedCost(cost, {}, {}) if isinstance(cost, CostModel) and not cost.gates else cost


class _Tally:
    """Sums over batches."""

    def __init__(self, cost: Accounting) -> None:
        self.cost = cost
        self.open: dict[str, Tensor] = {}
        self.layer_flops: dict[str, float] = {}
        self.per_sample: list[Tensor] = []
        self.paper = 0.0
        self.confusion: Tensor | None = None

    def add(self, logits: Tensor, y: Tensor, decisions: Decisions) -> None:
        """Counts one batch."""
        if not isinstance(logits, Tensor) or logits.dim() != 2:
            raise SanpError(
                f"the network gives {describe(logits)}: evaluate measures classifiers, which give (N, classes)"
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
            self.open[name] = self.open.get(name, 0) + opened.expand(count, -1).sum(0)
        for name, flops in self.cost.per_layer(exact).items():
            self.layer_flops[name] = self.layer_flops.get(name, 0.0) + float(flops.expand(count).sum())
        self.per_sample.append(self.cost.per_sample(exact).expand(count))
        self.paper += float(self.cost.paper_per_sample(exact).expand(count).sum())

    def report(self, overhead: int) -> Report:
        """What the sums say."""
        assert self.confusion is not None
        per_sample = torch.cat(self.per_sample).cpu()
        count = len(per_sample)
        return Report(
            accuracy=float(self.confusion.diagonal().sum()) / count,
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

"""The report of a network: accuracy, FLOPs, and its channels layer by layer; as a table, and as plain values."""

import textwrap
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sanp.gating.flops import human


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
    """share of the images that are classified correctly"""
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
    """of every convolution, in order of execution"""
    confusion: np.ndarray[Any, np.dtype[np.int64]]
    """(classes, classes): the number of images by true class, then by predicted class"""

    @property
    def error(self) -> float:
        """Share of the images that are classified wrongly: 1 - accuracy."""
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
        above = textwrap.wrap(layer.name, 80) if len(layer.name) > 32 else []  # not cut: long names end alike
        lines += above
        name = "" if above else layer.name
        counts = f"{layer.never:>7} {layer.sometimes:>8} {layer.always:>6}"
        lines.append(f"{name:<32} {layer.channels:>8} {layer.kept:>6.1%} {counts}  {human(layer.flops)}")
    if most is not None and len(report.layers) > most:
        lines.append(f"and {len(report.layers) - most} layers more")
    return "\n".join(lines)

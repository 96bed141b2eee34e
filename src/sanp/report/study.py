"""A study of a run's network: what one pass over the test images shows beyond report.json.

It holds each image's answer and cost, how often the images of each class compute each channel (paper, figure 1b), and
the cheapest and the dearest images themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sanp import data
from sanp.core.devices import CPU
from sanp.evaluation import Onlooker
from sanp.experiments import run_folder

SHOWN = 12
"""images at each end of the cost that are kept to be shown"""
LARGEST_PICTURE = 96
"""pixels of a kept image's side at most"""

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """What one pass over the test images showed, image by image and class by class."""

    classes: tuple[str, ...]
    labels: IntArray
    """(N,): the true class"""
    answers: IntArray
    """(N,): the predicted class"""
    confidence: FloatArray
    """(N,): the predicted class's probability"""
    flops: FloatArray
    """(N,): what the image costs"""
    open: Mapping[str, FloatArray]
    """layer name to (K, C_out): the share of a class's images for which a channel is computed"""
    shown: IntArray
    """(S,): positions of the cheapest images, then of the dearest"""
    pictures: IntArray
    """(S, C, H, W): those images, uint8"""

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Which images are classified rightly (N,)."""
        return np.asarray(self.labels == self.answers)

    @property
    def varies(self) -> bool:
        """Whether images differ in cost at all."""
        return bool(np.ptp(self.flops) > 0)


def make_study(folder: Path, dataset: data.Dataset, device: torch.device = CPU) -> Study:
    """Runs the network of the run in ``folder``, on ``device``, over the test images of ``dataset`` once."""
    network = run_folder.load_run(folder, dataset).to(device)
    onlooker: Onlooker | None = None
    answers, confidence, flops = [], [], []
    opened: dict[str, Tensor] = {}
    counts = torch.bincount(dataset.test.labels, minlength=dataset.num_classes).clamp(min=1)[:, None]
    for x, y in run_folder.evaluation_batches(dataset):
        onlooker = onlooker or Onlooker(network, x[:1])
        seen = onlooker(x)
        best = seen.probabilities.max(1)
        answers.append(best.indices)
        confidence.append(best.values)
        flops.append(seen.flops)
        for name, mask in seen.open.items():
            total = opened.setdefault(name, torch.zeros(dataset.num_classes, mask.shape[1], dtype=torch.float64))
            total.index_add_(0, y, mask.double())
    cost = torch.cat(flops).numpy()
    order = np.argsort(cost, kind="stable")
    few = min(SHOWN, len(order) // 2) or 1
    shown = np.concatenate([order[:few], order[::-1][:few]])
    return Study(
        classes=dataset.classes,
        labels=dataset.test.labels.numpy(),
        answers=torch.cat(answers).numpy(),
        confidence=torch.cat(confidence).numpy(),
        flops=cost,
        open={name: (total / counts).float().numpy() for name, total in opened.items()},
        shown=shown,
        pictures=_pictures(dataset.test, shown),
    )


def _pictures(split: data.Examples, positions: IntArray) -> IntArray:
    images = next(iter(split.read([torch.from_numpy(positions.copy())])))  # uint8 (S, C, H, W)
    if max(images.shape[2:]) > LARGEST_PICTURE:
        smaller = interpolate(images.float(), (LARGEST_PICTURE, LARGEST_PICTURE), mode="bilinear", antialias=True)
        images = smaller.round().clamp(0, 255).to(torch.uint8)
    return np.asarray(images.numpy())

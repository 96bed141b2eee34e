"""A study of a run: one pass over the test images, kept in the run folder so that the next report needs no data.

Beyond report.json it knows each image's answer and cost, how often each class opens each channel (paper, figure 1b),
and the cheapest and dearest images themselves.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor
from torch.nn.functional import interpolate

from sanp import data
from sanp.core.errors import SanpError
from sanp.core.files import write_atomically
from sanp.evaluation import Onlooker
from sanp.experiments import run_folder
from sanp.experiments.inputs import inputs_of, keep_inputs

FILE = "study.safetensors"
FORMAT = "1"
SHOWN = 12
"""images at each end of the cost that are kept to be shown"""
LARGEST = 96
"""side of a kept image at most"""

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """What one pass over the test images showed, image by image and class by class."""

    classes: tuple[str, ...]
    labels: Ints
    """(N,)"""
    answers: Ints
    """(N,): the predicted class"""
    confidence: Floats
    """(N,): its probability"""
    flops: Floats
    """(N,)"""
    open: Mapping[str, Floats]
    """layer name to (K, C_out): the share of a class's images for which a channel is computed"""
    shown: Ints
    """positions of the cheapest images, then of the dearest"""
    pictures: Ints
    """those images, uint8 (S, C, H, W)"""

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Which images are classified rightly (N,)."""
        return np.asarray(self.labels == self.answers)

    @property
    def varies(self) -> bool:
        """Whether images differ in cost at all."""
        return bool(np.ptp(self.flops) > 0)


def study(folder: Path) -> Study:
    """The study kept in a run folder if it is of this network, or else a new one, which is kept there."""
    model = folder / "model.safetensors"
    if not model.is_file():
        raise SanpError(f"{folder} is not finished (no model.safetensors): go on with sanp train --resume {folder}")
    mark = hashlib.sha256(model.read_bytes()).hexdigest()
    found = _kept(folder / FILE, mark)
    if found is None:
        dataset = run_folder.load_data(run_folder.read_run(folder))
        found = make_study(folder, dataset)
        keep_inputs(folder, inputs_of(dataset))
        _keep(found, folder / FILE, mark)
    return found


def make_study(folder: Path, dataset: data.Dataset) -> Study:
    """Runs the network over the test images once."""
    network = run_folder.load_run(folder, dataset)
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


def _pictures(split: data.Examples, positions: Ints) -> Ints:
    images = next(iter(split.read([torch.from_numpy(positions.copy())])))  # uint8 (S, C, H, W)
    if max(images.shape[2:]) > LARGEST:
        smaller = interpolate(images.float(), (LARGEST, LARGEST), mode="bilinear", antialias=True)
        images = smaller.round().clamp(0, 255).to(torch.uint8)
    return np.asarray(images.numpy())


def _keep(found: Study, path: Path, mark: str) -> None:
    """Writes a study; a folder that cannot be written to only means that it is made again next time."""
    arrays = {
        name: np.ascontiguousarray(getattr(found, name))
        for name in ("labels", "answers", "confidence", "flops", "shown", "pictures")
    }
    arrays |= {f"open/{name}": np.ascontiguousarray(shares) for name, shares in found.open.items()}
    header = {"format": FORMAT, "model": mark, "classes": json.dumps(found.classes)}
    try:
        write_atomically(path, lambda temporary: save_file(arrays, temporary, header))
    except SanpError:
        return


def _kept(path: Path, mark: str) -> Study | None:
    """The study in a file; nothing if it is of another network or damaged, since it can be made again."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT or header.get("model") != mark:
                return None
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        layers = {name.partition("/")[2]: arrays.pop(name) for name in list(arrays) if name.startswith("open/")}
        found = Study(classes=tuple(map(str, json.loads(header["classes"]))), open=layers, **arrays)
        return found if _is_whole(found) else None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_whole(found: Study) -> bool:
    """Whether the parts of a study are of the kinds and sizes that belong together, and their values possible."""
    classes, images, shown = len(found.classes), len(found.labels), len(found.shown)
    sides = found.pictures.shape[1:]
    return (
        all(_within(numbers, np.integer, (images,), classes - 1) for numbers in (found.labels, found.answers))
        and _within(found.confidence, np.floating, (images,), 1 + 1e-6)
        and _within(found.flops, np.floating, (images,), 1e15)
        and all(_within(each, np.floating, (classes, each.shape[-1]), 1 + 1e-6) for each in found.open.values())
        and _within(found.shown, np.integer, (shown,), images - 1)
        and found.pictures.dtype == np.uint8
        and found.pictures.shape[:1] == (shown,)
        and len(sides) == 3
        and sides[0] in (1, 3)
        and 0 < min(sides) <= max(sides) <= LARGEST
    )


def _within(values: npt.NDArray[Any], kind: Any, shape: tuple[int, ...], most: float) -> bool:
    """Whether there are such numbers, and all of them from 0 to ``most``."""
    right = values.shape == shape and values.size > 0 and np.issubdtype(values.dtype, kind)
    return bool(right and values.min() >= 0 and values.max() <= most)  # NaN is neither

"""The curve of a network under its dial: accuracy, cost and time at budgets over the range, kept in the run folder."""

import hashlib
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from sanp import data
from sanp.core.checks import is_kind
from sanp.core.errors import SanpError, SlowWarning
from sanp.core.files import check_tensor_file, read_text, write_text
from sanp.core.limits import LARGEST_COUNT
from sanp.engine.compiling import compile
from sanp.evaluation import Onlooker
from sanp.experiments import run_folder
from sanp.gating.network import GatedNetwork

CURVE = "dial.json"
CURVE_POINTS = 9
"""budgets of the curve"""
CURVE_IMAGES, TIMED_OF_THEM = 2000, 24
"""test images that accuracy and cost are measured on at the most, and of them those that are timed"""
TIMES_EACH = 5
"""times that an image is timed: its shortest time counts"""


@dataclass(frozen=True)
class CurvePoint:
    """The network at one budget."""

    kept: float
    """mean cost, of the dense FLOPs"""
    accuracy: float
    milliseconds: float | None
    """mean over images, one at a time, with the engine in one thread; None if it was not measured"""


@dataclass(frozen=True)
class DialCurve:
    """The points from the smallest budget to the largest."""

    images: int
    """test images that accuracy and cost were measured on"""
    points: tuple[CurvePoint, ...]


def curve_of(folder: Path, dataset: Callable[[], data.Dataset] | None = None) -> DialCurve | None:
    """The curve kept in a run folder if it is of this network, or else a new one; None for a network without a dial.

    ``dataset`` gives the data set of the run, if it was loaded already.
    """
    model = folder / run_folder.MODEL
    if not model.is_file():
        return None
    check_tensor_file(model)
    with model.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    found = _read(folder / CURVE, checksum)
    if found is not None:
        return found
    recipe = run_folder.read_run(folder)
    if ".." not in recipe.budget:
        return None
    images = run_folder.load_data(recipe) if dataset is None else dataset()
    network = run_folder.load_run(folder, images).eval()
    if not isinstance(network, GatedNetwork) or network.dial is None:
        return None
    found = measure_curve(network, images)
    _write(found, folder / CURVE, checksum)
    return found


@torch.no_grad()
def measure_curve(network: GatedNetwork, dataset: data.Dataset) -> DialCurve:
    """Runs the network at budgets over the range of its dial on test images of ``dataset``."""
    assert network.dial is not None
    images, labels = _first(dataset, CURVE_IMAGES)
    shares = torch.linspace(network.dial.low, network.dial.high, CURVE_POINTS, dtype=torch.float64).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)
        engine = compile(network, images[:1])
    found = []
    for share in shares:
        network.set_budget(share)
        if engine.plan.native:
            engine.set_budget(share)
            outputs, decided = engine.run_recorded(images) or (None, {})
        else:
            outputs, decided = None, {}
        if outputs is None:
            seen = Onlooker(network, images[:1])(images)
            right, flops, taken = seen.probabilities.argmax(1) == labels, seen.flops, None
        else:
            right = outputs[0].argmax(1) == labels
            flops = network.cost.per_sample({name: each.double() for name, each in decided.items()})
            taken = _milliseconds(engine, images[:TIMED_OF_THEM])
        found.append(CurvePoint(float(flops.mean()) / network.dense_flops, float(right.double().mean()), taken))
    return DialCurve(len(images), tuple(found))


def _first(dataset: data.Dataset, count: int) -> tuple[Tensor, Tensor]:
    """The first test images, normalised, and their labels."""
    images, labels = [], []
    for x, y in run_folder.evaluation_batches(dataset):
        images.append(x)
        labels.append(y)
        if sum(map(len, images)) >= count:
            break
    return torch.cat(images)[:count], torch.cat(labels)[:count]


def _milliseconds(engine: Callable[[Tensor], object], images: Tensor) -> float:
    """The mean over images of the shortest time of each."""
    shortest = [math.inf] * len(images)
    for _ in range(TIMES_EACH):
        for place, image in enumerate(images.split(1)):
            start = time.perf_counter()
            engine(image)
            shortest[place] = min(shortest[place], 1e3 * (time.perf_counter() - start))
    return statistics.mean(shortest)


def _write(curve: DialCurve, path: Path, checksum: str) -> None:
    """Writes a curve; a folder that cannot be written to only means that it is measured again next time."""
    try:
        write_text(path, json.dumps({"model": checksum, **asdict(curve)}))
    except SanpError:
        return


def _read(path: Path, checksum: str) -> DialCurve | None:
    """The curve in a file; None if it is of another network or damaged, since it can be measured again."""
    if not path.is_file():
        return None
    try:
        found = json.loads(read_text(path))
        points = tuple(CurvePoint(**point) for point in found["points"])
        numbers = [number for point in points for number in (point.kept, point.accuracy, point.milliseconds or 1.0)]
        shares = all(0 <= share <= 1 for point in points for share in (point.kept, point.accuracy))
        counted = is_kind(found["images"], int) and 0 < found["images"] <= LARGEST_COUNT
        whole = len(points) == CURVE_POINTS and shares and all(0 < number <= LARGEST_COUNT for number in numbers)
        return DialCurve(found["images"], points) if whole and counted and found["model"] == checksum else None
    except (SanpError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None

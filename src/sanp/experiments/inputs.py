"""What a run's network takes and gives: image size, normalisation, names of the classes; kept beside it as JSON."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sanp import data
from sanp.core.errors import SanpError
from sanp.core.files import write_atomically
from sanp.experiments import run_folder

FILE = "inputs.json"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """From pixels to the network, and from its answer to a name."""

    image_size: int
    """side of the square images"""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    def __post_init__(self) -> None:
        numbers = (*self.mean, *self.std)
        good = len(self.mean) == len(self.std) and all(math.isfinite(n) for n in numbers) and min(self.std) > 0
        if not good or not 1 <= self.image_size <= 4096 or not self.classes:
            raise SanpError("size, mean, std or classes make no sense")

    def normalise(self, pixels: npt.NDArray[np.uint8] | Tensor) -> Tensor:
        """Pixels (N, C, H, W) from 0 to 255 as the network was trained on them."""
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (torch.as_tensor(pixels).float() / 255 - mean) / std


def inputs_of(dataset: data.Dataset) -> Inputs:
    """What a data set's images need."""
    return Inputs(image_size=dataset.image_size, mean=dataset.mean, std=dataset.std, classes=dataset.classes)


def read_inputs(folder: Path) -> Inputs:
    """A run's inputs; the first time from its data set, afterwards from the file that this leaves in the folder."""
    path = folder / FILE
    if path.is_file():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return Inputs(
                image_size=int(kept["image_size"]),
                mean=tuple(map(float, kept["mean"])),
                std=tuple(map(float, kept["std"])),
                classes=tuple(map(str, kept["classes"])),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise SanpError(f"{path} is damaged ({error}): remove it, it is made again from the data") from error
    found = inputs_of(run_folder.load_data(run_folder.read_run(folder)))
    keep_inputs(folder, found)
    return found


def keep_inputs(folder: Path, found: Inputs) -> None:
    """Leaves the inputs in the run folder; one that cannot be written to is left as it is."""
    text = json.dumps(asdict(found), indent=1)

    def write(path: str) -> None:
        Path(path).write_text(text, encoding="utf-8")

    try:
        write_atomically(folder / FILE, write)
    except SanpError:
        return

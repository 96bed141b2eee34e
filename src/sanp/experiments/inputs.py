"""inputs.json in a run folder: the image size, normalisation and class names that the network was trained with."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sanp import data
from sanp.core.errors import SanpError, unknown_name
from sanp.core.files import read_text, write_text
from sanp.core.limits import LARGEST_SIDE, MOST_CLASSES
from sanp.data.decode import Resize
from sanp.experiments import run_folder

INPUTS_FILE = "inputs.json"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What is needed to turn pixels into the network's input, and its output into a class name."""

    image_size: int
    """side of the square images in pixels"""
    mean: tuple[float, ...]
    """of each channel, for pixels from 0 to 1"""
    std: tuple[float, ...]
    """standard deviation of each channel, for pixels from 0 to 1"""
    classes: tuple[str, ...]
    """names of the classes, in the order of the network's outputs"""
    resize: Resize = "crop"
    """how an image that is not square becomes it"""

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.classes)

    def __post_init__(self) -> None:
        numbers = (*self.mean, *self.std)
        good = len(self.mean) == len(self.std) and all(math.isfinite(n) for n in numbers) and min(self.std) > 0
        if not good or not 1 <= self.image_size <= LARGEST_SIDE or not 1 <= len(self.classes) <= MOST_CLASSES:
            raise SanpError("size, mean, std or classes make no sense")
        if self.resize not in get_args(Resize):
            raise unknown_name("resize", self.resize, get_args(Resize))

    def normalise(self, pixels: npt.NDArray[np.uint8] | Tensor) -> Tensor:
        """The network's input for pixels (N, C, H, W) from 0 to 255: normalised as in training."""
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (torch.as_tensor(pixels).float() / 255 - mean) / std


def inputs_of(dataset: data.Dataset) -> Inputs:
    """The inputs of a data set."""
    return Inputs(
        image_size=dataset.image_size,
        mean=dataset.mean,
        std=dataset.std,
        classes=dataset.classes,
        resize=dataset.resize,
    )


def read_inputs(folder: Path) -> Inputs:
    """The inputs of a run: from inputs.json in its folder, or else from its data set; then the file is written."""
    path = folder / INPUTS_FILE
    if path.is_file():
        try:
            kept = json.loads(read_text(path))
            return Inputs(
                image_size=int(kept["image_size"]),
                mean=tuple(map(float, kept["mean"])),
                std=tuple(map(float, kept["std"])),
                classes=tuple(map(str, kept["classes"])),
                resize=kept.get("resize", "crop"),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise SanpError(f"{path} is damaged ({error}): remove it, it is made again from the data") from error
    found = inputs_of(run_folder.load_data(run_folder.read_run(folder)))
    keep_inputs(folder, found)
    return found


def keep_inputs(folder: Path, found: Inputs) -> None:
    """Writes inputs.json into a run folder; does nothing if the folder cannot be written."""
    try:
        write_text(folder / INPUTS_FILE, json.dumps(asdict(found), indent=1))
    except SanpError:
        return

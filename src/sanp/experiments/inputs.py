"""inputs.json in a run folder: the image size, normalisation and class names that the network was trained with."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sanp import data
from sanp.core.errors import SanpError, shown
from sanp.core.files import read_text, write_text
from sanp.core.forward_size import check_forward
from sanp.core.limits import LARGEST_CHANNELS, LARGEST_SIDE, LONGEST_LABEL, MOST_CLASSES
from sanp.data.decode import Resize, check_resize
from sanp.experiments import run_folder
from sanp.gating.network import GatedNetwork

INPUTS_FILE = "inputs.json"
_LARGEST = 1e6
"""of a mean or deviation of pixels from 0 to 1; a deviation is at least one part in so many"""


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
        good = len(self.mean) == len(self.std) <= LARGEST_CHANNELS and all(abs(n) <= _LARGEST for n in numbers)
        if not good or not self.mean or min(self.std) < 1 / _LARGEST or not 1 <= self.image_size <= LARGEST_SIDE:
            raise SanpError("size, mean or std make no sense")
        if not 1 <= len(self.classes) <= MOST_CLASSES or max(map(len, self.classes)) > LONGEST_LABEL:
            raise SanpError(
                f"it has no classes, more than {MOST_CLASSES}, or names of more than {LONGEST_LABEL} letters"
            )
        check_resize(self.resize)

    def normalise(self, pixels: npt.NDArray[np.uint8] | Tensor) -> Tensor:
        """The network's input for pixels (N, C, H, W) from 0 to 255: normalised as in training."""
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (torch.as_tensor(pixels).float() / 255 - mean) / std


def check_fits(network: nn.Module, inputs: Inputs, folder: Path) -> None:
    """Raises an error if the network of the run in ``folder`` was not pruned on images as ``inputs`` says.

    Also if one forward on such an image would take too much.
    """
    channels, size = len(inputs.mean), inputs.image_size
    if (shape := _pruned_on(network)) is not None and shape[1:] != (channels, size, size):
        raise SanpError(
            f"{folder / INPUTS_FILE} says images of {channels}x{size}x{size}, the network was pruned on "
            f"{'x'.join(map(str, shape[1:]))}: remove that file, it is made again from the data"
        )
    check_forward(network, torch.empty(1, channels, size, size, device="meta"), folder / INPUTS_FILE)


def _pruned_on(network: nn.Module) -> tuple[int, ...] | None:
    """The shape of the input that a network was pruned with, where the network knows it."""
    shapes = network.origin.input_shapes if isinstance(network, GatedNetwork) else ()
    shape: tuple[int, ...] | None = shapes[0] if shapes else getattr(network, "input_shape", None)
    return shape


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
                image_size=_whole(kept["image_size"]),
                mean=tuple(map(float, kept["mean"])),
                std=tuple(map(float, kept["std"])),
                classes=tuple(_names(kept["classes"])),
                resize=kept.get("resize", "crop"),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise SanpError(f"{path} is damaged ({error}): remove it, it is made again from the data") from error
    found = inputs_of(run_folder.load_data(run_folder.read_run(folder)))
    keep_inputs(folder, found)
    return found


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"image_size is {shown(value)}, no whole number")
    return value


def _names(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError("classes is no list of names")
    return value


def keep_inputs(folder: Path, found: Inputs) -> None:
    """Writes inputs.json into a run folder; does nothing if the folder cannot be written."""
    try:
        write_text(folder / INPUTS_FILE, json.dumps(asdict(found), indent=1))
    except SanpError:
        return

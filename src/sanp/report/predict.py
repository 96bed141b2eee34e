"""Predictions for image files: the label, how sure the network is, what it cost and how long it took."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sanp.core.devices import CPU
from sanp.core.errors import SanpError
from sanp.data.decode import decode
from sanp.experiments.budgeted import at_budget
from sanp.experiments.calibrated import calibrated
from sanp.experiments.inputs import Inputs, check_fits, read_inputs
from sanp.experiments.run_folder import load_run
from sanp.report.fast_look import FastLook


@dataclass(frozen=True)
class Prediction:
    """What the network says of an image."""

    image: str
    """the path of the file"""
    label: str
    """the name of the predicted class"""
    confidence: float
    """the predicted class's probability"""
    flops: float
    """multiply-adds of the convolutions"""
    kept: float
    """the same as a share of the dense network's"""
    seconds: float
    """one call of the engine for this image alone, without reading the file"""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


class Predictor:
    """The network of the run in a folder, ready for image files; ``budget`` is one of its range, if it has a dial.

    ``precision="int8"`` computes on bytes; a network that was never calibrated for that is calibrated on its training
    images first. On the ``device`` CPU it runs in the engine, elsewhere in torch.
    """

    def __init__(
        self, folder: Path, budget: str | None = None, precision: str = "fp32", *, device: torch.device = CPU
    ) -> None:
        self.inputs: Inputs = read_inputs(folder)
        self.network: nn.Module = at_budget(calibrated(load_run(folder, self.inputs), folder, precision), budget).eval()
        size, channels = self.inputs.image_size, len(self.inputs.mean)
        check_fits(self.network, self.inputs, folder)
        self.look = FastLook(self.network.to(device), torch.zeros(1, channels, size, size), precision)

    def pixels(self, image: Path) -> npt.NDArray[np.uint8]:
        """An image file as the data set's images are: in colour, square and of their size (C, H, W)."""
        if not image.is_file():
            raise SanpError(f"{image} is not a file: give a PNG, JPEG or WebP image")
        return decode(image, self.inputs.image_size, self.inputs.resize)

    def predict(self, image: Path) -> Prediction:
        """Runs the network on an image file."""
        x = self.inputs.normalise(self.pixels(image)[None].copy())
        seen = self.look(x)
        confidence, label = seen.probabilities[0].max(0)
        flops = float(seen.flops[0])
        kept = flops / self.look.cost.dense_flops
        name = self.inputs.classes[int(label)]
        return Prediction(str(image), name, float(confidence), flops, kept, self.look.seconds(x))

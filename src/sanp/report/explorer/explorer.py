"""A run's network under every budget that it can be set to, and the test images to try it on."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sanp.core.devices import CPU
from sanp.core.errors import SanpError
from sanp.data.decode import decode
from sanp.evaluation import Onlooker, Seen
from sanp.experiments import run_folder
from sanp.experiments.calibrated import calibrated
from sanp.experiments.inputs import INPUTS_FILE, inputs_of, keep_inputs
from sanp.gating.network import GatedNetwork
from sanp.report.dial_curve import curve_of
from sanp.report.explorer.answers import Answer
from sanp.report.explorer.budgets import Setting, Shifts, measure_settings
from sanp.report.fast_look import FastLook

MEASURED_ON = 32
"""test images that the cost of a setting is measured on"""

Pixels = npt.NDArray[np.uint8]


class Explorer:
    """A run's network and its test images.

    It answers one request at a time, since a setting changes the network. ``settings`` go from the cheapest to the
    dearest, and ``trained`` is the position of the one that training ended with. On the ``device`` CPU the engine runs,
    which computes in ``precision``, fp32 or int8; elsewhere torch.
    """

    def __init__(self, folder: Path, precision: str = "fp32", device: torch.device = CPU) -> None:
        dataset = run_folder.load_data(run_folder.read_run(folder))
        self.folder, self.test, self.inputs, self.precision = folder, dataset.test, inputs_of(dataset), precision
        self.network = calibrated(run_folder.load_run(folder, self.inputs), folder, precision).eval().to(device)
        if not (folder / INPUTS_FILE).is_file():
            keep_inputs(folder, self.inputs)
        size = self.inputs.image_size
        self.look = Onlooker(self.network, torch.zeros(1, dataset.channels, size, size))
        self._lock = threading.Lock()
        self._shifts = Shifts(self.network) if isinstance(self.network, GatedNetwork) else None
        self._compiled: dict[int, FastLook] = {}
        """position of a setting to the network compiled under it"""
        self.settings, self.trained = self._measure()
        self.curve = curve_of(folder, lambda: dataset)
        """accuracy, cost and time over the range of a network with a dial; None for others"""

    @property
    def dense_flops(self) -> int:
        """FLOPs of one image with every channel computed."""
        return self.look.cost.dense_flops

    def image(self, position: int) -> Pixels:
        """A test image (C, H, W)."""
        if not 0 <= position < len(self.test):
            raise SanpError(f"test image {position} does not exist: there are {len(self.test)}")
        return np.asarray(next(iter(self.test.read([torch.tensor([position])])))[0].numpy())

    def decode(self, content: bytes) -> Pixels:
        """An image file that somebody dropped on the page, of the size of the data set's images (C, H, W)."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "dropped"
            path.write_bytes(content)
            try:
                return decode(path, self.inputs.image_size, self.inputs.resize)
            except SanpError as error:
                raise SanpError(str(error).replace(str(path), "this file")) from error

    def answer(self, pixels: Pixels, place: int) -> tuple[Answer, Seen]:
        """What the network says of an image (C, H, W) and does under the setting at ``place`` in ``settings``."""
        setting, x = self.settings[place], self.inputs.normalise(pixels[None].copy())
        with self._set(setting):
            seen = self._look_at(place, x)(x)
        kept = float(seen.flops[0]) / self.dense_flops
        return Answer(setting, seen.probabilities[0].numpy(), kept), seen

    def seconds(self, pixels: Pixels, place: int) -> float:
        """The time that an image takes under a setting, of one call of several."""
        x = self.inputs.normalise(pixels[None].copy())
        with self._set(self.settings[place]):
            return self._look_at(place, x).seconds(x)

    def _look_at(self, place: int, x: Tensor) -> FastLook:
        """The network compiled under the setting at ``place``, which it must have now; ``x`` is an input for it."""
        if place not in self._compiled:
            self._compiled[place] = FastLook(self.network, x, self.precision)
        return self._compiled[place]

    def answers(self, pixels: Pixels) -> list[Answer]:
        """What the network says of an image under every setting, from the cheapest to the dearest."""
        return [self.answer(pixels, place)[0] for place in range(len(self.settings))]

    def _measure(self) -> tuple[tuple[Setting, ...], int]:
        """The settings, and the position of the trained one."""
        positions = torch.randperm(len(self.test), generator=torch.Generator().manual_seed(0))[:MEASURED_ON]
        images = self.inputs.normalise(next(iter(self.test.read([positions]))))
        if not isinstance(self.network, GatedNetwork) or not self.network.layers:
            kept = float(self.look(images).flops.mean()) / self.dense_flops
            return (Setting(kept, 0.0),), 0
        settings = measure_settings(self.network, images)
        return settings, min(range(len(settings)), key=lambda place: abs(settings[place].shift))

    @contextmanager
    def _set(self, setting: Setting) -> Iterator[None]:
        """The network under a setting, which no other request changes meanwhile."""
        with self._lock:
            if self._shifts is not None:
                self._shifts.set(setting.shift)
            yield

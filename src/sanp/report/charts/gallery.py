"""The cheapest and the dearest test images, with their classes and what the network says they are."""

import base64
import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from sanp.gating.flops import human
from sanp.report.study import Study


@dataclass(frozen=True)
class Picture:
    """A test image of a gallery."""

    address: str
    """a ``data:`` address that holds the PNG file"""
    position: int
    """in the test set"""
    label: str
    """the true class"""
    answer: str
    """the predicted class"""
    right: bool
    confidence: str
    flops: str


def gallery(study: Study) -> tuple[list[Picture], list[Picture]]:
    """The cheapest images and the dearest; none if all cost the same."""
    if not study.varies:
        return [], []
    pictures = [_picture(study, place, int(position)) for place, position in enumerate(study.shown)]
    half = len(pictures) // 2
    return pictures[:half], pictures[half:]


def png_address(pixels: npt.NDArray[np.uint8]) -> str:
    """An image (C, H, W) as a ``data:`` address, which holds the whole PNG file."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    with io.BytesIO() as file:
        image.save(file, "PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _picture(study: Study, place: int, position: int) -> Picture:
    label, answer = int(study.labels[position]), int(study.answers[position])
    return Picture(
        address=png_address(np.asarray(study.pictures[place], dtype=np.uint8)),
        position=position,
        label=study.classes[label],
        answer=study.classes[answer],
        right=label == answer,
        confidence=f"{study.confidence[position]:.0%}",
        flops=human(float(study.flops[position])),
    )

"""Image files of random pixels."""

from pathlib import Path

import numpy as np
from PIL import Image


def save(path: Path, image: Image.Image, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def noise(seed: int, width: int = 20, height: int = 14) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))

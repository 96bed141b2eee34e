"""One image file as pixels: turned upright, in RGB, its shorter side scaled to the wanted size and the middle kept."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sanp.core.errors import SanpError
from sanp.core.limits import LARGEST_PICTURE_SIDE, MOST_PIXELS

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})
FORMATS = ("PNG", "JPEG", "WEBP")


def decode(path: Path, size: int) -> npt.NDArray[np.uint8]:
    """The image in a file, as (3, size, size)."""
    from PIL import Image, ImageOps

    try:
        if not path.is_file():
            raise ValueError("it is not an ordinary file")
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"{image.width}x{image.height} pixels, more than {MOST_PIXELS}")
            if max(image.size) > LARGEST_PICTURE_SIDE:
                raise ValueError(f"{image.width}x{image.height} pixels, a side of more than {LARGEST_PICTURE_SIDE}")
            if image.format == "JPEG":
                image.draft(None, (2 * size, 2 * size))  # the decoder leaves out detail that scaling would take away
            upright = ImageOps.exif_transpose(image)
            fitted = ImageOps.fit(_rgb(upright), (size, size), method=Image.Resampling.BILINEAR)
            return np.asarray(fitted).transpose(2, 0, 1)
    except Exception as error:  # Pillow's decoders raise errors of many kinds on a broken file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SanpError(f"{path} cannot be read as an image ({reason}): replace or remove it") from error


def _rgb(image: "Image") -> "Image":
    """Any mode as RGB; what lies under a transparent pixel is kept, as torchvision's image folders do."""
    from PIL import Image as images

    if image.mode.startswith("I"):  # 16 bits a pixel, which Pillow would clip to 255, not scale
        return images.fromarray((np.asarray(image).clip(0, 65535) // 256).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")  # Pillow asks for the step between
    return image.convert("RGB")

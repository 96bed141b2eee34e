"""One image file as pixels: turned upright, in RGB, made square by a crop, a border or a distortion, and scaled."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from sanp.core.errors import SanpError, unknown_name
from sanp.core.limits import LARGEST_PICTURE_SIDE, MOST_PIXELS

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})
IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")


Resize = Literal["crop", "pad", "stretch"]
"""How an image that is not square becomes it. crop: the middle square is kept; pad: all is kept, between grey borders;
stretch: all is kept, distorted."""
BORDER_COLOUR = (124, 116, 104)
"""of the borders: ImageNet's mean, which is near 0 after normalisation"""


def decode(path: Path, size: int, resize: Resize = "crop") -> npt.NDArray[np.uint8]:
    """The image in a file, as (3, size, size), made square as ``resize`` says."""
    from PIL import Image, ImageOps

    if resize not in get_args(Resize):
        raise unknown_name("resize", resize, get_args(Resize))
    try:
        if not path.is_file():
            raise ValueError("it is not an ordinary file")
        with Image.open(path, formats=IMAGE_FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"{image.width}x{image.height} pixels, more than {MOST_PIXELS}")
            if max(image.size) > LARGEST_PICTURE_SIDE:
                raise ValueError(f"{image.width}x{image.height} pixels, a side of more than {LARGEST_PICTURE_SIDE}")
            if image.format == "JPEG":
                image.draft(None, (2 * size, 2 * size))  # the decoder leaves out detail that scaling would take away
            upright = ImageOps.exif_transpose(image)
            return np.asarray(_square(_rgb(upright), size, resize)).transpose(2, 0, 1)
    except Exception as error:  # Pillow's decoders raise errors of many kinds on a broken file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SanpError(f"{path} cannot be read as an image ({reason}): replace or remove it") from error


def _square(image: "Image", size: int, resize: Resize) -> "Image":
    """The image as a square of this side."""
    from PIL import Image as images
    from PIL import ImageOps

    smooth = images.Resampling.BILINEAR
    if resize == "pad":
        return ImageOps.pad(image, (size, size), method=smooth, color=BORDER_COLOUR)
    if resize == "stretch":
        return image.resize((size, size), smooth)
    return ImageOps.fit(image, (size, size), method=smooth)


def _rgb(image: "Image") -> "Image":
    """Any mode as RGB; what lies under a transparent pixel is kept, as torchvision's image folders do."""
    from PIL import Image as images

    if image.mode.startswith("I"):  # 16 bits a pixel, which Pillow would clip to 255, not scale
        return images.fromarray((np.asarray(image).clip(0, 65535) // 256).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")  # Pillow asks for the step between
    return image.convert("RGB")

"""One image file as pixels: turned upright, in RGB, made square by a crop, a border or a distortion, and scaled."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from sanp.core.checks import is_whole
from sanp.core.errors import SanpError, shown, unknown_name
from sanp.core.files import read_bytes
from sanp.core.limits import LARGEST_PICTURE_FILE, LARGEST_PICTURE_SIDE, LARGEST_SIDE, MOST_PIXELS
from sanp.data.picture_parts import check_exif, check_parts

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})
IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")


Resize = Literal["crop", "pad", "stretch"]
"""How an image that is not square becomes it. crop: the middle square is kept; pad: all is kept, between grey borders;
stretch: all is kept, distorted."""
BORDER_COLOUR = (124, 116, 104)
"""of the borders: ImageNet's mean, which is near 0 after normalisation"""


def check_size(size: int) -> None:
    """Raises an error if no data set can have images of this side."""
    if not is_whole(size, 8, LARGEST_SIDE):
        raise SanpError(f"size is {shown(size)}: give a number of pixels from 8 to {LARGEST_SIDE}")


def check_resize(resize: str) -> None:
    """Raises an error if images cannot be made square in this way."""
    if resize not in get_args(Resize):
        raise unknown_name("resize", resize, get_args(Resize))


def decode(path: Path, size: int, resize: Resize = "crop") -> npt.NDArray[np.uint8]:
    """The image in a file, as (3, size, size), made square as ``resize`` says."""
    return decode_sized(path, size, resize)[0]


def decode_sized(path: Path, size: int, resize: Resize = "crop") -> tuple[npt.NDArray[np.uint8], tuple[int, int]]:
    """The same, with the width and height that the image has when it is shown upright."""
    from PIL import Image, UnidentifiedImageError

    check_resize(resize)
    try:
        content = read_bytes(path, LARGEST_PICTURE_FILE)
        check_parts(content)
        with Image.open(BytesIO(content), formats=IMAGE_FORMATS) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"{width}x{height} pixels, more than {MOST_PIXELS}")
            if max(width, height) > LARGEST_PICTURE_SIDE:
                raise ValueError(f"{width}x{height} pixels, a side of more than {LARGEST_PICTURE_SIDE}")
            if image.format == "JPEG":
                image.draft(None, (2 * size, 2 * size))  # the decoder leaves out detail that scaling would take away
            turned = _orientation(image)
            upright = image if turned not in _TURNS else image.transpose(_TURNS[turned])
            pixels = np.asarray(_square(_rgb(upright), size, resize)).transpose(2, 0, 1)
            return pixels, (height, width) if turned in _ON_ITS_SIDE else (width, height)
    except UnidentifiedImageError as error:
        raise SanpError(f"{path} cannot be read as an image (no PNG, JPEG or WebP): replace or remove it") from error
    except Exception as error:  # Pillow's decoders raise errors of many kinds on a broken file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SanpError(f"{path} cannot be read as an image ({reason}): replace or remove it") from error


_TURNS: dict[object, Any] = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""EXIF orientation to the number of Pillow's Transpose that undoes it"""
_ON_ITS_SIDE = (5, 6, 7, 8)


def _orientation(image: "Image") -> object:
    """How the image lies, as its EXIF block says; ImageOps.exif_transpose would also write that block anew."""
    image.load()  # a PNG file may have its EXIF block after the pixels
    check_exif(len(image.info.get("exif") or b""))
    check_exif(len(image.info.get("Raw profile type exif") or "") // 2)  # hexadecimal
    return image.getexif().get(0x0112)


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

"""The first layers of a backbone by the size of its images: small images keep their size, larger ones lose it early."""

from typing import Literal

Stem = Literal["small", "large"]
"""small: as for CIFAR, every pixel of the image has a place in the first map; large: as for ImageNet"""
LARGEST_SMALL = 64
"""side of the largest images that the small stem is for; at 128x128 it would make a ResNet-18 cost 8.9 GFLOPs"""


def stem_for(image_size: int) -> Stem:
    """The stem for images of this side."""
    return "small" if image_size <= LARGEST_SMALL else "large"

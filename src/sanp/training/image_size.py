"""Progressive resizing: early steps of pretraining see smaller images, which cost less (Howard 2018, fast.ai)."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

SMALL_UNTIL, WHOLE_FROM = 0.4, 0.7
"""shares of the steps: until the first, images are smallest; from the second on, they have their own size"""
MULTIPLE = 4
"""sides are multiples of so many pixels, so that two halvings lose no row"""


def growing(start: float) -> Callable[[Tensor, float], Tensor]:
    """Resizes the images of a step; their side is the share ``start`` of their own at first, and 1 at last.

    The function that is returned takes images (N, C, H, W) and the share of the steps that is done.
    """

    def resized(images: Tensor, progress: float) -> Tensor:
        share = share_at(progress, start)
        size = [side_of(side, share) for side in images.shape[2:]]
        if size == list(images.shape[2:]):
            return images
        return F.interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)

    return resized


def share_at(progress: float, start: float) -> float:
    """The share of the side at a point of training: ``start``, then a straight line up to 1, then 1."""
    grown = (progress - SMALL_UNTIL) / (WHOLE_FROM - SMALL_UNTIL)
    return start + (1 - start) * min(max(grown, 0.0), 1.0)


def side_of(side: int, share: float) -> int:
    """This share of a side in whole pixels: a multiple of 4, at least 4, at most the side itself."""
    return side if share == 1 else min(side, max(MULTIPLE, MULTIPLE * round(share * side / MULTIPLE)))

"""Random images, for a network that is timed without a data set."""

import torch
import torch.nn.functional as F
from torch import Tensor


def random_images(shape: tuple[int, ...], count: int, seed: int = 0) -> Tensor:
    """Inputs that differ as photographs do, in brightness, contrast and colour, so that gates differ too."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, *shape, generator=generator)
    if len(shape) != 3:
        return noise
    coarse = torch.randn(count, shape[0], 6, 6, generator=generator)
    smooth = F.interpolate(coarse, size=shape[1:], mode="bilinear")
    contrast = 0.3 + 2 * torch.rand(count, 1, 1, 1, generator=generator)
    return smooth * contrast + torch.randn(count, shape[0], 1, 1, generator=generator)

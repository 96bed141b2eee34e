"""Segmentation to half the FLOPs: a network of pytorchcv, a loss of one's own, two lines for the budget.

The task is made up: mark the bright square in a noisy image. Run it with ``python examples/segmentation.py``; it needs
``pip install pytorchcv --no-deps``.
"""

import torch
import torch.nn.functional as F
from pytorchcv.models.unet import unet_cityscapes
from torch import Tensor

import sanp

SIZE = 32


def squares(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noisy images and for each pixel whether it is in the square."""
    images = 0.5 * torch.randn(count, 3, SIZE, SIZE, generator=generator)
    marks = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    for mark, (top, left) in zip(
        marks, torch.randint(SIZE // 2, (count, 2), generator=generator).tolist(), strict=True
    ):
        mark[top : top + SIZE // 2, left : left + SIZE // 2] = 1
    return images + marks[:, None], marks


def main(steps: int = 60, share: str = "50%", batch: int = 8) -> dict[str, float]:
    """Trains, meets the budget, and gives the accuracy by pixel and the share of the FLOPs that is left."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    net = unet_cityscapes(num_classes=2, in_size=(SIZE, SIZE))
    gated = sanp.gate(net, torch.randn(1, 3, SIZE, SIZE))
    optimizer = torch.optim.Adam(gated.parameter_groups(lr=1e-3, steps=steps))
    budget = sanp.Budget(gated, share, steps=steps)
    for _ in range(steps):
        images, marks = squares(batch, generator)
        with sanp.record(gated) as gates:
            loss = F.cross_entropy(gated(images), marks)
        loss = loss + budget.loss(gates)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    calibration, _ = squares(64, generator)
    gated.set_budget(share, calibration)
    with torch.no_grad():  # after so few steps the batch norms' running statistics lag behind
        for images in calibration.split(batch):
            gated(images)
    gated.set_budget(share, calibration)
    report = sanp.evaluate(gated, [squares(64, generator)])  # images it has not seen
    return {"accuracy": report.accuracy, "kept": report.kept}


if __name__ == "__main__":
    print({name: round(value, 3) for name, value in main().items()})

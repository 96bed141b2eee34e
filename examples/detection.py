"""Detection to 60 % of the FLOPs: one head on two scales, outputs in dicts, a loss that is nobody's but the task's.

The task is made up: find the square in a noisy image, small ones on the fine map, large ones on the coarse map. Run it
with ``python examples/detection.py``.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp

SIZE = 32


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Detector(nn.Module):
    """A backbone, a path back up to the finer map, and one head for both maps."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(block(3, 16, 2), block(16, 32, 2))
        self.coarse = nn.Sequential(block(32, 32, 2), block(32, 32))
        self.across = nn.Conv2d(32, 32, 1)
        self.head = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 1))

    def forward(self, images: Tensor) -> dict[str, list[Tensor]]:
        """For each map: is the middle of a square here, and how large is it?"""
        fine = self.fine(images)
        coarse = self.coarse(fine)
        fine = self.across(fine) + F.interpolate(coarse, scale_factor=2.0)
        found = [self.head(level) for level in (fine, coarse)]
        return {"score": [out[:, 0] for out in found], "size": [out[:, 1:] for out in found]}


def squares(count: int, generator: torch.Generator) -> tuple[Tensor, list[dict[str, Any]]]:
    """Noisy images and for each the middle and the size of its square."""
    images = 0.3 * torch.randn(count, 3, SIZE, SIZE, generator=generator)
    targets = []
    for image in images:
        size = int(torch.randint(4, 17, (), generator=generator))
        top, left = (int(torch.randint(SIZE - size, (), generator=generator)) for _ in range(2))
        image[:, top : top + size, left : left + size] += 1
        targets.append({"middle": (top + size / 2, left + size / 2), "size": size / SIZE, "level": int(size > 8)})
    return images, targets


def detection_loss(found: dict[str, list[Tensor]], targets: list[dict[str, Any]]) -> Tensor:
    """Which cell of which map, and how large."""
    maps = torch.cat([score.flatten(1) for score in found["score"]], 1)
    sizes = torch.cat([size.flatten(2) for size in found["size"]], 2)  # (N, 2, cells)
    cells = torch.tensor([cell_of(target) for target in targets])
    wanted = torch.tensor([[target["size"]] * 2 for target in targets])
    here = sizes[torch.arange(len(cells)), :, cells]
    return F.cross_entropy(maps, cells) + F.smooth_l1_loss(here, wanted)


def cell_of(target: dict[str, Any]) -> int:
    """The number of the cell that must answer: the fine map's 64 first, then the coarse map's 16."""
    stride = 8 if target["level"] else 4
    row, column = (int(place // stride) for place in target["middle"])
    return (64 if target["level"] else 0) + row * (SIZE // stride) + column


def main(steps: int = 150, share: str = "60%", batch: int = 32) -> dict[str, float]:
    """Trains, meets the budget, and gives the loss before and after and the share of the FLOPs that is left."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    gated = sanp.gate(Detector(), torch.randn(1, 3, SIZE, SIZE))
    optimizer = torch.optim.Adam(gated.parameter_groups(lr=3e-3, steps=steps))
    budget = sanp.Budget(gated, share, steps=steps)
    test = squares(64, generator)
    before = measure(gated, *test)["loss"]
    for _ in range(steps):
        images, targets = squares(batch, generator)
        with sanp.record(gated) as gates:
            loss = detection_loss(gated(images), targets)
        loss = loss + budget.loss(gates)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    gated.set_budget(share, squares(128, generator)[0])
    return {"before": before, **measure(gated, *test)}


@torch.no_grad()
def measure(gated: sanp.GatedNetwork, images: Tensor, targets: list[dict[str, Any]]) -> dict[str, float]:
    """On images it has not seen."""
    training = gated.training
    gated.eval()
    with sanp.record(gated) as gates:
        loss = detection_loss(gated(images), targets)
    gated.train(training)
    flops = gated.cost.per_sample({name: gate.decision for name, gate in gates.items()}).mean()
    return {"loss": float(loss), "kept": float(flops) / gated.dense_flops}


if __name__ == "__main__":
    print({name: round(value, 3) for name, value in main().items()})

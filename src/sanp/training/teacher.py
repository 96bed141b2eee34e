"""Whether a teacher knows anything: its answers must fit their own images better than other images."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sanp.core import distributed
from sanp.core.batch_checks import input_and_target
from sanp.core.modules import device_of, evaluating

MOST_IMAGES, MOST_BATCHES = 256, 8
"""so many images are looked at, of at most so many batches"""
SHUFFLES = 4
"""orders in which the answers of a batch are given to other images"""
LEAST = 0.1
"""share by which the loss must be lower for the right images; an untrained network has a few hundredths at most, one
that classifies half of ten classes correctly has about a half"""

MUCH = 0.3
"""a network with this share knows what it would be a pity to lose"""


class LossOf(Protocol):
    """Computes the task's loss from an output and a target."""

    def __call__(self, output: Any, target: Any) -> Tensor:
        """The loss."""
        ...


@torch.no_grad()
def knowledge(teacher: nn.Module, loader: Any, loss_of: LossOf) -> float | None:
    """The share by which the loss of a teacher's answers is lower than if they are given to other images.

    ``loader`` gives the batches, of which the first few are used. ``loss_of`` is the task's loss. The result is about 0
    for a network that knows nothing of the task and near 1 for a good one. It is None if these batches cannot tell, for
    example because all images of each are of one class.
    """
    device, generator = device_of(teacher), torch.Generator().manual_seed(0)
    right = wrong = 0.0
    seen = 0
    with evaluating(teacher):
        for number, batch in enumerate(loader):
            if number == MOST_BATCHES or seen >= MOST_IMAGES:
                break
            x, y = input_and_target(batch)
            y = y.to(device) if isinstance(y, Tensor) else y
            if len(x) < 2 or (isinstance(y, Tensor) and bool((y == y[:1]).all())):
                continue
            seen += len(x)
            output = teacher(x.to(device))
            right += float(loss_of(output, y))
            orders = [torch.randperm(len(x), generator=generator) for _ in range(SHUFFLES)]
            wrong += sum(float(loss_of(_in_order(output, order), y)) for order in orders) / SHUFFLES
    right, wrong, seen_anywhere = distributed.weighted_mean([right, wrong, float(seen)], 1 / distributed.world())
    return (wrong - right) / abs(wrong) if seen_anywhere and wrong else None


def _in_order(output: Any, order: Tensor) -> Any:
    """The output with its samples in another order."""

    def moved(leaf: Any) -> Any:
        ours = isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == len(order)
        return leaf[order.to(leaf.device)] if ours else leaf

    return tree_map(moved, output)

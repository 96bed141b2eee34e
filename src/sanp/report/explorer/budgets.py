"""The budgets that a trained network can be set to without training: shifts of its thresholds, and their mean costs."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import mean_kept

WIDEST = 0.05
"""two neighbouring settings differ by at most this share of the dense cost, where the network lets them"""
NARROWEST, CHEAPEST = 0.01, 0.02
"""settings nearer to each other, or cheaper, show nothing new"""


@dataclass(frozen=True, order=True)
class Setting:
    """What is added to the trained level of every gate, and the mean cost on the images that it was measured on."""

    share: float
    shift: float


class Shifts:
    """Moves all gates of a network from where training left them, which need not be the same for all."""

    def __init__(self, network: GatedNetwork) -> None:
        self._trained = [(layer.spm, layer.spm.level) for layer in network.layers.values()]

    def set(self, shift: float) -> None:
        """Zero is the trained network."""
        for spm, level in self._trained:
            spm.level = level + shift


def measure(network: GatedNetwork, images: Tensor, *, most: int = 24) -> tuple[Setting, ...]:
    """Settings from the cheapest to the dearest, the trained one among them; one alone if thresholds change nothing."""
    shifts = Shifts(network)

    def cost_at(shift: float) -> float:
        shifts.set(shift)
        return mean_kept(network, [images])

    try:
        return _explore(cost_at, most)
    finally:
        shifts.set(0.0)


def _explore(cost_at: Callable[[float], float], most: int) -> tuple[Setting, ...]:
    """Widens both ways until the cost stops changing, then halves the widest gap again and again."""
    found = {0.0: cost_at(0.0)}
    for direction in (-1, 1):
        shift, step = 0.0, 0.25
        for _ in range(4):
            before = found[shift]
            shift, step = shift + direction * step, 2 * step
            found[shift] = cost_at(shift)
            if abs(found[shift] - before) < 0.005:
                break
    while len(found) < most:
        places = sorted(found)
        gaps = [(found[low] - found[high], low, high) for low, high in pairwise(places)]
        gap, low, high = max(gaps)
        if gap <= WIDEST or high - low < 1e-4:
            break
        found[(low + high) / 2] = cost_at((low + high) / 2)
    kept = [Setting(found[0.0], 0.0)]
    for shift, share in sorted(found.items()):
        if share >= CHEAPEST and all(abs(share - other.share) > NARROWEST for other in kept):
            kept.append(Setting(share, shift))
    return tuple(sorted(kept))

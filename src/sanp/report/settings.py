"""The budgets that a trained network can be set to without training: thresholds, each with the mean cost it gives."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from sanp.dial import level_of, mean_cost, set_all, set_level
from sanp.network import GatedNetwork

WIDEST = 0.05
"""two neighbouring settings differ by at most this share of the dense cost, where the network lets them"""
NARROWEST, CHEAPEST = 0.01, 0.02
"""settings nearer to each other, or cheaper, show nothing new"""


@dataclass(frozen=True, order=True)
class Setting:
    """What the dial moves, the same in all gates, and the mean cost on the images that it was measured on."""

    share: float
    threshold: float


def measure(network: GatedNetwork, images: Tensor, *, most: int = 24) -> tuple[Setting, ...]:
    """Settings from the cheapest to the dearest, the trained one among them; one alone if thresholds change nothing."""
    trained = [level_of(layer.spm) for layer in network.layers.values()]

    def cost_at(threshold: float) -> float:
        set_all(network, threshold)
        return mean_cost(network, [images])

    try:
        return _explore(cost_at, trained[0], most)
    finally:
        for layer, threshold in zip(network.layers.values(), trained, strict=True):
            set_level(layer.spm, threshold)


def _explore(cost_at: Callable[[float], float], start: float, most: int) -> tuple[Setting, ...]:
    """Widens both ways until the cost stops changing, then halves the widest gap again and again."""
    found = {start: cost_at(start)}
    for direction in (-1, 1):
        threshold, step = start, 0.25
        for _ in range(4):
            before = found[threshold]
            threshold, step = threshold + direction * step, 2 * step
            found[threshold] = cost_at(threshold)
            if abs(found[threshold] - before) < 0.005:
                break
    while len(found) < most:
        places = sorted(found)
        gaps = [(found[low] - found[high], low, high) for low, high in pairwise(places)]
        gap, low, high = max(gaps)
        if gap <= WIDEST or high - low < 1e-4:
            break
        found[(low + high) / 2] = cost_at((low + high) / 2)
    kept = [Setting(found[start], start)]
    for threshold, share in sorted(found.items()):
        if share >= CHEAPEST and all(abs(share - other.share) > NARROWEST for other in kept):
            kept.append(Setting(share, threshold))
    return tuple(sorted(kept))

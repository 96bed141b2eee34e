"""The budgets that a trained network can be set to without training: shifts of its thresholds, and their mean costs."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from sanp.gating.dial import Dial
from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import kept_on

WIDEST = 0.05
"""two neighbouring settings differ by at most this share of the dense cost, where the network lets them"""
NARROWEST, CHEAPEST = 0.01, 0.02
"""settings nearer to each other, or cheaper, show nothing new"""


@dataclass(frozen=True, order=True)
class Setting:
    """A stop of the budget's slider."""

    kept: float
    """the mean cost on the images that it was measured on, of the dense FLOPs"""
    shift: float
    """what is added to the trained level of every gate; 0 is the trained network"""


class Shifts:
    """Moves the levels of all gates of a network from where training left them, which may differ from gate to gate.

    A level is a threshold, or in a gate that opens the best k channels the share of channels that stay closed.
    """

    def __init__(self, network: GatedNetwork) -> None:
        self._trained = [(layer.spm, layer.spm.level) for layer in network.layers.values()]

    def set(self, shift: float) -> None:
        """Adds ``shift`` to every trained level; 0 gives the trained network."""
        for spm, level in self._trained:
            spm.level = level + shift


def measure_settings(network: GatedNetwork, images: Tensor, *, most: int = 24) -> tuple[Setting, ...]:
    """Settings from the cheapest to the dearest, the trained one among them; one alone if thresholds change nothing.

    ``images`` are normalised (N, C, H, W); the cost is their mean. The network is run on them at most ``most`` times. A
    network that was trained for a range has the points of its dial, with the costs that were measured for it.
    """
    if network.dial is not None:
        return dial_settings(network.dial, next(iter(network.layers.values())).spm.level)
    shifts = Shifts(network)

    def kept_at(shift: float) -> float:
        shifts.set(shift)
        return kept_on(network, [images])

    try:
        return find_settings(kept_at, most)
    finally:
        shifts.set(0.0)


def dial_settings(dial: Dial, level: float) -> tuple[Setting, ...]:
    """The points of a dial, from the cheapest to the dearest; ``level`` is the present threshold of the network.

    The range that the network was trained for is the whole of the slider: nothing breaks within it.
    """
    points = zip(dial.shares, dial.thresholds, strict=True)
    return tuple(Setting(share, threshold - level) for share, threshold in points)


def find_settings(kept_at: Callable[[float], float], most: int) -> tuple[Setting, ...]:
    """Shifts both ways until the cost stops changing, then halves the widest gap in cost again and again.

    ``kept_at`` gives the mean cost of a shift, as a share of the dense FLOPs.
    """
    found = {0.0: kept_at(0.0)}
    for direction in (-1, 1):
        shift, step = 0.0, 0.25
        for _ in range(4):
            before = found[shift]
            shift, step = shift + direction * step, 2 * step
            found[shift] = kept_at(shift)
            if abs(found[shift] - before) < 0.005:
                break
    while len(found) < most:
        places = sorted(found)
        gaps = [(found[low] - found[high], low, high) for low, high in pairwise(places)]
        gap, low, high = max(gaps)
        if gap <= WIDEST or high - low < 1e-4:
            break
        found[(low + high) / 2] = kept_at((low + high) / 2)
    settings = [Setting(found[0.0], 0.0)]
    for shift, kept in sorted(found.items()):
        if kept >= CHEAPEST and all(abs(kept - other.kept) > NARROWEST for other in settings):
            settings.append(Setting(kept, shift))
    return tuple(sorted(settings))

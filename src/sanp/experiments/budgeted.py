"""A run's network at another budget than its own, as the commands' ``--budget`` asks."""

from collections.abc import Callable

from torch import Tensor, nn

from sanp import data
from sanp.core.errors import SanpError
from sanp.engine.bench.latency import latency_table
from sanp.gating.amount import parse_budget
from sanp.gating.network import GatedNetwork

CALIBRATION_IMAGES = 512
"""training images that thresholds are calibrated on, where the network has no dial"""
TIMED = 64
"""of them, images that are timed for a budget in milliseconds"""


def at_budget(
    network: nn.Module,
    budget: str | None,
    images: Callable[[], Tensor] | None = None,
    *,
    max_flops: str | None = None,
) -> nn.Module:
    """Sets the budget of a run's network in place, if one is given, and the cap ``max_flops``, if one is given.

    ``images`` gives normalised training images; it is called only where they are needed: to calibrate thresholds, to
    measure times for a budget such as ``1.2ms``, or to divide a cap among the layers. Without it a budget that needs
    them is an error.
    """
    if budget is None and max_flops is None:
        return network
    if not isinstance(network, GatedNetwork):
        option = "--max-flops" if budget is None else f"--budget {budget}"
        raise SanpError(f"{option}: this network has no gates, so that its cost cannot be set")
    if budget is not None:
        _set_budget(network, budget, images)
    if max_flops is not None:
        network.set_max_flops(max_flops, None if images is None else images())
    return network


def _set_budget(network: GatedNetwork, budget: str, images: Callable[[], Tensor] | None) -> None:
    wanted = parse_budget(budget)
    if wanted.unit == "ms" and network.latency is None:
        if images is None:
            raise SanpError(f"--budget {budget} is a time: this command has no images to time; give a share, as 35%")
        network.latency = latency_table(network, images()[:TIMED])
    kept = network.kept_for(wanted)
    needed = network.dial is None or not network.dial.covers(kept)
    network.set_budget(wanted, images() if needed and images is not None else None)


def training_images(dataset: data.Dataset) -> Callable[[], Tensor]:
    """Gives the first training images of a data set, normalised and without augmentation."""

    def images() -> Tensor:
        count = min(CALIBRATION_IMAGES, len(dataset.train))
        return next(iter(data.Batches(dataset.train, count, mean=dataset.mean, std=dataset.std)))[0]

    return images

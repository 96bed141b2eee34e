"""What `sanp bench` times: the networks of a run with its test images, or a network of one's own with random images."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from sanp.cli.console import plain
from sanp.cli.target import build_target, read_input
from sanp.core.errors import SanpError
from sanp.engine.bench.images import random_images
from sanp.experiments.budgeted import at_budget, training_images
from sanp.experiments.calibrated import calibrated
from sanp.experiments.own_network import build_for
from sanp.experiments.run_folder import evaluation_batches, load_data, load_run, read_run
from sanp.gating.gating import gate
from sanp.gating.network import GatedNetwork

THRESHOLD_IMAGES = 128
"""images that the thresholds of each cost are set on"""


def bench_target(
    target: str,
    run: Path,
    *,
    shape: str,
    weights: Path | None,
    budget: str | None,
    precision: str,
    say: Callable[[str], None],
) -> tuple[str, nn.Module, nn.Module, Tensor]:
    """The name, the dense network, the pruned one and images; ``run`` is the folder that ``target`` means, if any.

    ``shape`` and ``weights`` are for a network that is no run, ``budget`` and ``precision`` for a run.
    """
    if run.is_dir():
        say(f"{plain(target)}: reading the network and test images ...")
        return run.resolve().name, *_of_run(run, budget, precision)
    if budget is not None:
        raise SanpError(f"--budget {budget} is for the folder of a run: {target} is none")
    say(f"{plain(target)}: building and gating the network ...")
    return target, *_of_name(target, shape, weights)


def _of_run(run: Path, budget: str | None, precision: str) -> tuple[nn.Module, nn.Module, Tensor]:
    """The network of a run before pruning, with random weights, and after it, at ``budget``; and test images."""
    recipe = read_run(run)
    dataset = load_data(recipe)
    images, _ = next(iter(evaluation_batches(dataset, THRESHOLD_IMAGES)))
    dense = build_for(recipe.backbone, dataset)
    network = at_budget(calibrated(load_run(run, dataset), run, precision), budget, training_images(dataset))
    return dense.eval(), network.eval(), images


def _of_name(target: str, shape: str, weights: Path | None) -> tuple[nn.Module, nn.Module, Tensor]:
    """A network of one's own, the same one gated, and random images; ``weights`` may be those of the gated one."""
    sizes = tuple(read_input(shape).shape[1:])
    images = random_images(sizes, THRESHOLD_IMAGES if sizes[-1] <= 64 else THRESHOLD_IMAGES // 8)
    net = build_target(target, weights, images).eval()
    if isinstance(net, GatedNetwork):
        return build_target(target, None, images).eval(), net, images
    return net, gate(net, images[:1]).eval(), images

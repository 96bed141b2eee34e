"""What a run starts from: its data, its network with the weights that the recipe names, and its task."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from sanp import data
from sanp.checkpoint import load
from sanp.core import distributed
from sanp.core.devices import chosen_device
from sanp.core.errors import SanpError
from sanp.experiments.budgeted import TIMED, training_images
from sanp.experiments.own_network import build_for
from sanp.experiments.recipe import Recipe
from sanp.experiments.run_folder import load_data
from sanp.experiments.run_times import RunTimes
from sanp.experiments.shipped import weights_named
from sanp.experiments.training_batches import Tell, training_batches
from sanp.experiments.weights_file import take_weights
from sanp.gating.budget_range import is_time
from sanp.gating.gating import planned_cost
from sanp.gating.network import GatedNetwork
from sanp.spm.module import SPMConfig, build_spm
from sanp.training.normless import suited_rates
from sanp.training.task import Task, set_dropout


@dataclass(frozen=True)
class StartingPoint:
    """All that a run needs before its first stage."""

    data: data.Dataset
    net: nn.Module
    """the dense network"""
    task: Task
    times: RunTimes | None
    """of a budget that is a time"""


def starting_point(recipe: Recipe, folder: Path, tell: Tell) -> StartingPoint:
    """Sets seed and threads as ``recipe`` says, loads the data, and builds the network and the task.

    ``folder`` is that of the run; ``tell`` is called with each line that the user should read.
    """
    place = chosen_device(recipe.device)
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    with distributed.first_on_its_machine_first():
        dataset = load_data(recipe)
    for note in dataset.notes:
        tell(note)
    net = build_for(recipe.backbone, dataset)
    if recipe.weights is not None:
        tell(f"{recipe.weights}: {take_weights(net, Path(recipe.weights))}")
    if recipe.pretrained is not None:
        net = load(weights_named(recipe.pretrained), net)
    net = net.to(place)
    set_dropout(net, recipe.fit.dropout)
    times = None
    if is_time(recipe.budget):
        times = RunTimes(folder, recipe.budget, lambda: training_images(dataset)()[:TIMED], tell)
    task = Task(
        loader=training_batches(recipe, dataset, tell),
        budget=recipe.budget,
        max_flops=recipe.max_flops,
        config=suited_rates(recipe.fit, net),
        spm=recipe.spm,
        objective=recipe.objective,
        controller=recipe.controller,
        timer=times,
        start=_gated_start(recipe, dataset),
    )
    return StartingPoint(dataset, net, task, times)


def _gated_start(recipe: Recipe, dataset: data.Dataset) -> GatedNetwork | None:
    """The gated network that training goes on from, if the recipe names one."""
    if recipe.start_from is None:
        return None
    start = load(weights_named(recipe.start_from), build_for(recipe.backbone, dataset))
    if not isinstance(start, GatedNetwork) or start.origin.method != recipe.method:
        raise SanpError(f"start_from {recipe.start_from} is no network that {recipe.method} gated: give one, or none")
    return start


def draw_unused(net: nn.Module, task: Task) -> None:
    """Draws random numbers for SPMs that are not used, as all earlier versions did at this point.

    Without these draws, the same seed would give other results than the published ones.
    """
    for layer in planned_cost(net, task.example(net)).gates.values():
        if layer.name == layer.path:
            build_spm(layer.in_channels, layer.out_channels, SPMConfig())

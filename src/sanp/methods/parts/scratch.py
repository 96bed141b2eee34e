"""Training from scratch: new random weights, and a stage with the learning rate of pretraining."""

import copy

import torch
from torch import nn

from sanp.training.optimizers import schedule, scheduled, sgd
from sanp.training.stage import Stage
from sanp.training.task import Task
from sanp.training.term import Penalty, PenaltyTerm, stage_with_term


def untrained(net: nn.Module, seed: int) -> nn.Module:
    """A copy of ``net`` whose layers have new random weights, as PyTorch draws them for the given ``seed``.

    Running statistics start anew. Parameters of modules that have no ``reset_parameters`` stay as they are.
    """
    fresh = copy.deepcopy(net)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in fresh.modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
    return fresh


def scratch_stage(
    name: str, net: nn.Module, task: Task, epochs: int, *, distill: bool, penalty: Penalty | None = None
) -> Stage:
    """A stage that trains all parameters of ``net`` with the learning rate of pretraining.

    ``name`` is the stage's name. ``distill`` mixes in the distillation loss if the task has a teacher; ``penalty`` is
    added to the loss.
    """
    config = task.config
    optimizers = [scheduled(sgd(list(net.parameters()), config.pretrain_lr, config), schedule(config))]
    term = None if penalty is None else PenaltyTerm(penalty)
    return stage_with_term(name, net, task, epochs, optimizers, term, distill=distill)

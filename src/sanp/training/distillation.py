"""Distillation: how far a network's answer is from its teacher's, for logits and for outputs of any other kind."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sanp.core.batch_checks import described
from sanp.core.errors import SanpError
from sanp.core.modules import tensors_in
from sanp.core.outputs import are_classes, logits_of

DistillLoss = Callable[[Any, Any], Tensor]
"""Computes a loss from the network's output and the teacher's."""


def distillation(output: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """The distillation loss T² KL(teacher, student) at the temperature T (Hinton et al., 2015).

    ``output`` are the logits of the network, ``wanted`` those of the teacher, (N, classes, ...) each. It is the mean
    over the images and, in maps, over their places.
    """
    student = F.log_softmax(output.float() / temperature, 1)
    teacher = F.log_softmax(wanted.float() / temperature, 1)
    apart = temperature**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)
    return apart / max(1, output[0, 0].numel())


def squared_difference(output: Any, wanted: Any) -> Tensor:
    """The mean squared difference of two outputs of any structure, as a share of the variance of ``wanted``.

    It is 1 for an output that is nowhere better than a constant. The tensors of an output share one variance, the sum
    of theirs: divided by its own, one that hardly varies would outweigh all others. For logits at a high temperature
    the distillation loss is a squared difference too (Hinton et al., 2015, section 2.1).
    """
    pairs = zip(tensors_in(output), tensors_in(wanted), strict=True)
    used = [
        (one.float(), other.float()) for one, other in pairs if one.is_floating_point() and one.shape == other.shape
    ]
    if not used:
        raise SanpError(
            f"the network gives {described(output)} and its teacher {described(wanted)}, which have no tensors to "
            "compare: give fit a distill_loss, or FitConfig(distill=0)"
        )
    apart = torch.stack([(one - other).square().mean() for one, other in used]).sum()
    spread = torch.stack([other.var(correction=0) for _, other in used]).sum()
    return torch.where(spread > 0, apart / spread.clamp(min=1e-12), 0 * apart)


def default_distill_loss(output: Any, wanted: Any, target: Any, temperature: float, *, own_loss: bool) -> Tensor:
    """The distillation loss of a task that has none of its own.

    ``output`` is the network's, ``wanted`` the teacher's, ``target`` the loader's. Logits are compared as in
    :func:`distillation`. With a loss of one's own (``own_loss``) an output is taken for logits only if the target has
    class numbers for it; any other output is compared by :func:`squared_difference`.
    """
    if not own_loss:
        return distillation(logits_of(output), logits_of(wanted), temperature)
    if are_classes(output, target):
        return distillation(output, wanted, temperature)
    return squared_difference(output, wanted)

"""What int8 changes: decisions of gates and outputs, against the same network in fp32."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.modules import call_with, tensors_in
from sanp.engine.compiled import Engine
from sanp.spm.gated_conv import spms_of
from sanp.spm.recording import record
from sanp.tracing.topology import module_path

FEWEST_DECISIONS = 0.99
"""the share of decisions that must be those of fp32"""
MOST_ERROR = 0.15
"""the largest root mean square of the difference of outputs, as a share of their standard deviation"""


@dataclass(frozen=True)
class Loss:
    """How far int8 is from fp32 on some samples."""

    samples: int
    decisions: float
    """the share of all decisions about channels that are the same; 1 without gates"""
    error: float
    """root mean square of the difference of outputs, as a share of the standard deviation of an output over samples"""

    @property
    def small(self) -> bool:
        """Whether it is what a user may expect of int8."""
        return self.decisions >= FEWEST_DECISIONS and self.error <= MOST_ERROR

    def __str__(self) -> str:
        return (
            f"{self.decisions:.2%} of the decisions are those of fp32, outputs differ by {self.error:.1%} of their "
            f"spread, on {self.samples} samples"
        )


def loss_of(engine: Engine, network: nn.Module, batch: Any) -> Loss:
    """Compares an int8 engine with ``network``, the fp32 network it came from; ``batch`` is as a call takes it."""
    with torch.no_grad(), record(network) as gates:
        expected = [leaf for leaf in tensors_in(call_with(network, batch)) if leaf.is_floating_point()]
    given, scores = engine.run_forced(batch, None)
    spms = spms_of(network)
    same = []
    for layer, score in scores.items():
        spm = spms[module_path(layer)]
        same.append((spm.binarize.decide(score) == spm.binarize.decide(spm.score(gates[layer]))).float())
    agreement = float(torch.cat([part.flatten() for part in same]).mean()) if same else 1.0
    return Loss(len(tensors_in(batch)[0]), agreement, _error(given, expected))


def _error(given: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Of all outputs the largest; without a spread over samples, as a share of the root mean square itself."""
    worst = 0.0
    for one, other in zip(given, expected, strict=True):
        spread = float((other - other.mean(0)).square().mean()) if len(other) > 1 else float(other.square().mean())
        worst = max(worst, (float((one - other).square().mean()) / max(spread, 1e-30)) ** 0.5)
    return worst


def joined_loss(parts: Sequence[Loss]) -> Loss:
    """The loss on all samples of several batches."""
    samples = sum(part.samples for part in parts)
    decisions = sum(part.decisions * part.samples for part in parts) / samples
    error = (sum(part.error**2 * part.samples for part in parts) / samples) ** 0.5
    return Loss(samples, decisions, error)

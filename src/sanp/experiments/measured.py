"""What a run measures: on its held-out images if it has any, and on the test images once, at the end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from sanp import data
from sanp.checkpoint import load
from sanp.core.modules import device_of
from sanp.evaluation import Report, evaluate
from sanp.experiments.own_network import build_for
from sanp.experiments.run_folder import DENSE, REPORT_FORMAT, evaluation_batches


def measure(network: nn.Module, dataset: data.Dataset) -> Report:
    """The evaluation of a network that is not final yet: on the held-out images, or else on the test images."""
    return evaluate(network, evaluation_batches(dataset, held_out=True), progress=False)


@dataclass(frozen=True)
class Measured:
    """The final evaluation of a run: of the network before pruning and after, and of both on held-out images."""

    dense: Report
    pruned: Report
    held_out: dict[str, float] | None = None
    """number of held-out images, accuracy before and after pruning on them, share of the dense FLOPs; None without"""

    def as_dict(self) -> dict[str, Any]:
        """The content of report.json."""
        dense = {"accuracy": self.dense.accuracy, "flops": self.dense.flops}
        held_out = {} if self.held_out is None else {"held_out": self.held_out}
        return {"format": REPORT_FORMAT, **self.pruned.as_dict(), "dense": dense, **held_out}


def finally_measured(pruned: nn.Module, dense: Report, dataset: data.Dataset, backbone: str, folder: Path) -> Measured:
    """Measures the network of a run that ends.

    ``dense`` is what :func:`measure` found before pruning. With held-out images, the network before pruning is read
    from the run's ``folder`` to be measured on the test images too; ``backbone`` is its name.
    """
    found = measure(pruned, dataset)
    if dataset.held_out is None:
        return Measured(dense, found)
    images = len(dataset.held_out)
    held_out = {"images": images, "dense_accuracy": dense.accuracy, "accuracy": found.accuracy, "kept": found.kept}
    if dataset.test is dataset.held_out:
        return Measured(dense, found, held_out)
    fresh = build_for(backbone, dataset)
    before = load(folder / DENSE, fresh).to(device_of(pruned))
    test = evaluation_batches(dataset)
    return Measured(evaluate(before, test, progress=False), evaluate(pruned, test, progress=False), held_out)

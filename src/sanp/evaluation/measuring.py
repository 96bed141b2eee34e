"""sanp.evaluate: runs a classifier over batches and adds up what its report says."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sanp.core.batch_checks import bad_batch_explained, described, input_and_target, why_not_labels
from sanp.core.checks import check_is_network, check_many
from sanp.core.errors import SanpError
from sanp.core.modules import evaluating, unwrapped
from sanp.core.outputs import check_output, logits_of
from sanp.evaluation.reports import LayerReport, Report
from sanp.gating.accounting import Accounted, Accounting
from sanp.gating.cost import Decisions, dense_flops, total
from sanp.gating.count import cost_of
from sanp.spm.recording import exact_decisions_of, record
from sanp.tracing.topology import Layer
from sanp.training.display import counted
from sanp.training.precision import Format


def evaluate(
    network: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    precision: str = "fp32",
    progress: bool = True,
) -> Report:
    """Runs a classifier, pruned or not, over the loader's batches in evaluation mode and returns what it measured.

    ``network`` gives logits (N, classes), or (N, classes, ...) for targets (N, ...) as in segmentation, alone, called
    ``logits`` in an object or dict, or first of a tuple. It may give several outputs for an image, for example one for
    each crop; the accuracy is then that of the outputs, and the FLOPs are still those of an image. ``loader`` gives
    batches of images and labels. ``precision`` is fp32, bf16 or auto. ``progress`` shows in a terminal how far it is,
    if it takes over a second.
    """
    check_is_network(network)
    check_many("loader", loader, "batches of images and labels")
    bare = unwrapped(network)
    tally: _Tally | None = None
    with evaluating(network), torch.no_grad():
        format = Format(network, precision, exact=True)
        for batch in counted(loader, "evaluating") if progress else loader:
            x, y = input_and_target(batch)
            if not isinstance(y, Tensor):
                raise SanpError(f"the loader gave {described(y)} as labels: give a tensor, one class number an image")
            x, y = format.place(x), y.to(format.device)
            if tally is None:
                tally = _Tally(cost_of(bare, x[:1]))
            with bad_batch_explained(network, x, y), record(network) as gates, format.autocast():
                output = network(x)
            tally.add(logits_of(output), y, exact_decisions_of(gates), images=len(x))
    if tally is None:
        raise SanpError("the loader to evaluate on is empty: give at least one batch")
    return tally.report(bare.overhead_flops if isinstance(bare, Accounted) else 0)


def _by_image(entries: Tensor, images: int) -> Tensor:
    """The mean over the entries of each image (images, ...); a network may make several of an image, such as crops."""
    if entries.dim() == 0 or len(entries) == 1:
        return entries.reshape(1, *entries.shape[1:]).expand(images, *entries.shape[1:])
    if len(entries) % images:
        raise SanpError(
            f"the gates decided for {len(entries)} rows, no multiple of the {images} images: give batches whose images "
            "take as many rows each"
        )
    return entries.reshape(images, -1, *entries.shape[1:]).mean(1)


class _Tally:
    """The sums of all measurements over the batches."""

    def __init__(self, cost: Accounting) -> None:
        self.cost = cost
        self.open: dict[str, Tensor] = {}
        self.layer_flops: dict[str, float] = {}
        self.per_sample: list[Tensor] = []
        self.paper = 0.0
        self.confusion: Tensor | None = None

    def add(self, logits: Tensor, y: Tensor, decisions: Decisions, images: int) -> None:
        """Adds one batch: logits, labels ``y``, the decisions of the gates, and the number of images."""
        if not isinstance(logits, Tensor) or logits.dim() < 2:
            raise SanpError(
                f"the network gives {described(logits)}: evaluate measures classifiers, which give (N, classes)"
            )
        if logits.dim() > 2 and y.shape == (*logits.shape[:1], *logits.shape[2:]):
            logits, y = logits.movedim(1, -1).flatten(0, -2), y.flatten()  # a class for each pixel
        elif logits.dim() > 2:
            raise SanpError(
                f"the network gives {described(logits)} for targets {described(y)}: a map of (N, classes, ...) wants "
                "a class for each of its places, (N, ...)"
            )
        count, classes = logits.shape
        if (why := why_not_labels(y, count, classes)) is not None:
            raise SanpError(why)
        check_output(logits)
        cells = torch.bincount(y * classes + logits.argmax(1), minlength=classes**2).reshape(classes, classes)
        self.confusion = cells if self.confusion is None else self.confusion + cells
        for name, opened in self.cost.open_outputs(decisions).items():
            self.open[name] = self.open.get(name, 0) + _by_image(opened, images).sum(0)
        each = self.cost.per_layer(decisions)
        for name, flops in each.items():
            self.layer_flops[name] = self.layer_flops.get(name, 0.0) + float(_by_image(flops, images).sum())
        self.per_sample.append(_by_image(total(each), images))
        self.paper += float(_by_image(self.cost.paper_per_sample(decisions), images).sum())

    def report(self, overhead: int) -> Report:
        """The report of all batches; ``overhead`` are the FLOPs of the decisions for one image."""
        assert self.confusion is not None
        per_sample = torch.cat(self.per_sample).cpu()
        count = len(per_sample)
        return Report(
            accuracy=float(self.confusion.diagonal().sum()) / int(self.confusion.sum()),
            flops=float(per_sample.mean()),
            paper_flops=self.paper / count,
            dense_flops=self.cost.dense_flops,
            overhead_flops=overhead,
            per_sample=per_sample.numpy(),
            layers=tuple(self._layer(layer, count) for layer in self.cost.layers),
            confusion=self.confusion.cpu().numpy(),
        )

    def _layer(self, layer: Layer, count: int) -> LayerReport:
        opened = self.open.get(layer.name)
        if opened is None:
            opened = torch.full((layer.out_channels,), float(count))
        never, always = int((opened == count).sum()), int((opened == 0).sum())
        return LayerReport(
            name=layer.name,
            channels=layer.out_channels,
            kept=float(opened.mean()) / count,
            never=never,
            sometimes=layer.out_channels - never - always,
            always=always,
            flops=self.layer_flops[layer.name] / count,
            dense_flops=dense_flops(layer),
        )

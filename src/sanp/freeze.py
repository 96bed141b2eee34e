"""What training sets in a network: frozen parameters and hashing that are put back afterwards, the rate of dropout."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from sanp.binarize import SemanticHashing
from sanp.network import GatedNetwork


@contextmanager
def frozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    """No gradient for these parameters inside."""
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)


def hashes(gated: GatedNetwork) -> list[SemanticHashing]:
    """The binarizers of all SPMs that use Improved Semantic Hashing."""
    return [layer.spm.binarize for layer in gated.layers.values() if isinstance(layer.spm.binarize, SemanticHashing)]


def set_hashing(gated: GatedNetwork, *, noise: float, soft_share: float) -> None:
    """Sets the noise and the share of soft samples of every SPM that hashes."""
    for each in hashes(gated):
        each.noise, each.soft_share = noise, soft_share


@contextmanager
def hashing_restored(gated: GatedNetwork) -> Iterator[None]:
    """Noise and soft share are afterwards what they were."""
    before = [(each, each.noise, each.soft_share) for each in hashes(gated)]
    try:
        yield
    finally:
        for each, noise, soft_share in before:
            each.noise, each.soft_share = noise, soft_share


def set_dropout(net: nn.Module, rate: float | None) -> None:
    """Gives every dropout layer this rate; none leaves them as they are."""
    for module in net.modules():
        if rate is not None and isinstance(module, _DropoutNd):
            module.p = rate

"""Networks without normalisation layers, whose weights the usual learning rates destroy: they get a lower one.

A batch norm makes a layer's output independent of the size of its weights, so that a step that is too large costs
little. Without one, the rate of fine-tuning took a network of three convolutions from 94 to 12 % in eight epochs.
"""

from dataclasses import replace

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from sanp.training.config import FitConfig

NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
"""PyTorch's own; its LocalResponseNorm and norms of weights do not make features independent of the weights' size"""


def has_norms(network: nn.Module) -> bool:
    """Whether anything in the network normalises features: a layer, or a batch norm that is a function."""
    if any(isinstance(module, NORMS) or _is_named_norm(type(module)) for module in network.modules()):
        return True
    return any(name.rpartition(".")[2] == "running_var" for name, _ in network.named_buffers())


def _is_named_norm(kind: type[nn.Module]) -> bool:
    """Whether a class that is not PyTorch's calls itself a norm."""
    return "norm" in kind.__name__.lower() and not kind.__module__.startswith("torch.")


def suited_rates(config: FitConfig, network: nn.Module) -> FitConfig:
    """The settings with the learning rates that suit the network: times ``normless`` if it has no normalisation."""
    if not isinstance(config, FitConfig) or config.normless == 1 or has_norms(network):  # what is none, Task refuses
        return config
    factor = config.normless
    return replace(config, lr=factor * config.lr, pretrain_lr=factor * config.pretrain_lr, normless=1.0)

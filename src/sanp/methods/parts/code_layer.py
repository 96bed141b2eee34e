"""The code layers of AutoPruner (Luo and Wu, 2018): each scales the channels of a layer by σ(α v).

v has one value for each channel; it is one linear layer over the batch mean of the activation after a 2x2 max pooling.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.devices import exact_on
from sanp.core.modules import device_of
from sanp.spm.recording import Gates, forward_of, note
from sanp.tracing.tracer import trace_forward


class CodeLayer(nn.Module):
    """A layer and its code layer, which scales each channel by a value predicted from the layer's activation.

    ``name`` is the name of the convolution. ``layer`` is the module whose output is scaled; its output has the given
    ``channels``, ``height`` and ``width``. The weights of n inputs start with the deviation ``start`` sqrt(2 / n). The
    code layer has an effect only while ``learns``; before and after that, the channels are multiplied by ``opened``,
    which is 1 at first.
    """

    mean_v: Tensor
    steepness: Tensor
    opened: Tensor

    def __init__(
        self, name: str, layer: nn.Module, channels: int, height: int, width: int, *, start: float = 10.0
    ) -> None:
        super().__init__()
        self.name, self.layer, self.learns = name, layer, True
        self.pool = 2 if min(height, width) >= 2 else 1
        self.size = channels * (height // self.pool) * (width // self.pool)
        self.code = nn.Linear(self.size, channels)
        nn.init.normal_(self.code.weight, std=start * math.sqrt(2 / self.size) * self.size)  # v is divided by size
        self.register_buffer("mean_v", torch.zeros(channels))
        self.register_buffer("steepness", torch.ones(()))
        self.register_buffer("opened", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:  # -> (N, C, H, W)
        """The output of the layer times σ(α v); evaluation uses the running mean of v."""
        y: Tensor = self.layer(x)
        if not self.learns:
            return y * self.opened.to(y.dtype)[:, None, None]
        v = self.mean_v
        if self.training:
            mean = F.max_pool2d(F.relu(y.detach()).mean(0, keepdim=True), self.pool)  # (1, C, H / 2, W / 2)
            with exact_on(x):  # decisions must not depend on rounding
                total = F.linear(mean.flatten(1).float(), self.code.weight)[0]
                v = total / self.size + self.code.bias  # (C,); divided, so that a step moves v alike in all layers
            with torch.no_grad():
                self.mean_v.lerp_(v, 0.1)
        scale = torch.sigmoid(self.steepness * v)
        note(self.name, Gates(scale[None], (scale.detach() > 0.5).float()[None], scale[None]))
        return y * scale.to(y.dtype)[:, None, None]


class CodedNetwork(nn.Module):
    """A network with code layers, for training.

    ``sites`` maps the path of a convolution to that of the module whose output is scaled: its batch norm, or the
    convolution itself. ``net`` is changed in place. ``example`` is an input for it, ``start`` the setting of that name.
    """

    def __init__(self, net: nn.Module, sites: Mapping[str, str], example: Tensor, start: float = 10.0) -> None:
        super().__init__()
        self.net = net
        shapes = _output_shapes(net, list(sites.values()), example)
        self.layers = {
            path: CodeLayer(path, net.get_submodule(site), *shapes[site][1:], start=start)
            for path, site in sites.items()
        }
        self._sites = dict(sites)
        for path, site in sites.items():
            _put(net, site, self.layers[path].to(device_of(net)))

    def forward(self, x: Tensor) -> Any:
        """The forward of the network with scaled channels; the scales are recorded as gates."""
        with forward_of(self):
            return self.net(x)

    def code_parameters(self, paths: Iterable[str] | None = None) -> list[nn.Parameter]:
        """The parameters of all code layers, or of those at ``paths``."""
        layers = [self.layers[path] for path in (self.layers if paths is None else paths)]
        return [parameter for layer in layers for parameter in layer.code.parameters()]

    def only_learn(self, paths: Iterable[str]) -> None:
        """Lets the code layers at these paths learn, and no others."""
        for path, layer in self.layers.items():
            layer.learns = path in paths

    def network_parameters(self) -> list[nn.Parameter]:
        """All parameters except those of the code layers."""
        codes = {id(parameter) for parameter in self.code_parameters()}
        return [parameter for parameter in self.net.parameters() if id(parameter) not in codes]

    def remove_codes(self) -> None:
        """Takes the code layers out of the network again."""
        for path, site in self._sites.items():
            _put(self.net, site, self.layers[path].layer)


def _output_shapes(net: nn.Module, paths: list[str], example: Tensor) -> dict[str, torch.Size]:
    """The output shape of each of these modules."""
    trace = trace_forward(net, example)
    calls = {call.path: call for call in trace.calls}
    return {path: trace.shapes[calls[path].outputs[0].index] for path in paths}


def _put(net: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(net.get_submodule(parent), name, module)

"""Linear layers over the channels of a map, (N, H, W, C), as ConvNeXt has them: 1x1 convolutions under another name.

Written as the convolutions that they are, they get gates, and count as convolutions.
"""

import torch
from torch import Tensor, nn

from sanp.core.copying import copy_of
from sanp.tracing.graph import Trace
from sanp.tracing.pointwise import pointwise_paths


class PointwiseLinear(nn.Module):
    """The linear layer ``linear`` as a 1x1 convolution: takes and gives maps with their channels last."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.conv = nn.Conv2d(linear.in_features, linear.out_features, 1, bias=linear.bias is not None, device="meta")
        with torch.no_grad():
            weight = nn.Parameter(linear.weight[:, :, None, None].clone(), linear.weight.requires_grad)
        self.conv.weight, self.conv.bias = weight, linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.train(linear.training)

    @property
    def weight(self) -> Tensor:
        """The matrix (C_out, C_in), for a network whose own forward reads it."""
        return self.conv.weight[:, :, 0, 0]

    @property
    def bias(self) -> Tensor | None:
        """The bias (C_out,) of the convolution."""
        return self.conv.bias

    def forward(self, x: Tensor) -> Tensor:  # (N, H, W, C_in) -> (N, H, W, C_out)
        """The same as the linear layer, with the channels moved first and back."""
        y: Tensor = self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return y


def write_as_convolutions(net: nn.Module, paths: list[str]) -> None:
    """Replaces the linear layers at these paths, in place."""
    modules = dict(net.named_modules(remove_duplicate=False))
    linears = [linear for path in paths if isinstance(linear := modules[path], nn.Linear)]
    made = {id(linear): PointwiseLinear(linear) for linear in linears}
    for parent in list(net.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in made:
                setattr(parent, name, made[id(child)])


def with_convolutions(net: nn.Module, trace: Trace) -> nn.Module:
    """``net`` itself, or a copy with convolutions in place of its pointwise linear layers if it has any."""
    paths = pointwise_paths(trace)
    if not paths:
        return net
    net = copy_of(net)
    write_as_convolutions(net, paths)
    return net

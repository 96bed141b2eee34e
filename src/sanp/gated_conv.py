"""The gated convolution (paper eq. 5): x_l = s · b · BatchNorm(f * x), an exact zero map where b is 0."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sanp.record import note, running
from sanp.spm import SPM


def _over_positions(scale: Tensor, features: Tensor) -> Tensor:
    """(N, C) made to multiply (N, C, ...) in the precision of the features."""
    return scale.to(features.dtype).reshape(*scale.shape, *(1,) * (features.dim() - 2))


class _Normalised(nn.Module):
    """A convolution and the batch norm that follows it, if any; other attributes are the convolution's own."""

    def __init__(self, name: str, conv: nn.Module, norm: nn.Module | None) -> None:
        super().__init__()
        self.name = name
        self.conv = conv
        self.norm = norm

    def __getattr__(self, name: str) -> Any:
        # A stranger's forward may read `self.conv1.weight` or `.stride`; it gets what stood there before.
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "conv":
                raise
            return getattr(self.conv, name)

    def features(self, x: Tensor) -> Tensor:
        """BatchNorm(f * x), all channels."""
        y: Tensor = self.conv(x)
        return y if self.norm is None else self.norm(y)


class GatedConv(_Normalised):
    """A convolution whose channels its SPM scales by their saliency or prunes."""

    def __init__(self, name: str, conv: nn.Module, norm: nn.Module | None, spm: SPM) -> None:
        super().__init__(name, conv, norm)
        self.spm = spm

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, C_out, ...)
        """Eq. 5; every channel is computed here, the engine skips the pruned ones."""
        gates = self.spm(x)
        y = self.features(x)
        note(self.name, gates)
        return y * _over_positions(gates.saliency * gates.applied, y)


class FollowingConv(_Normalised):
    """A depthwise convolution: a channel whose input was pruned is pruned too, so it needs no SPM of its own."""

    def __init__(
        self,
        name: str,
        conv: nn.Module,
        norm: nn.Module | None,
        open_channels: Callable[[Mapping[str, Tensor]], Tensor],
    ) -> None:
        super().__init__(name, conv, norm)
        self.open_channels = open_channels

    def forward(self, x: Tensor) -> Tensor:  # (N, C, ...) -> (N, C', ...)
        """BatchNorm(f * x) where the input channel was open, zero elsewhere."""
        y = self.features(x)
        decided = running()
        if not decided:
            return y
        applied = {name: gates.applied for name, gates in decided.items()}
        return y * _over_positions(self.open_channels(applied), y)

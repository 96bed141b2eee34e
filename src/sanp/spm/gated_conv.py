"""The gated convolution (paper eq. 5): x_l = s · b · BatchNorm(f * x), an exact zero map where b is 0."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.spm.module import SPM
from sanp.spm.outside_norm import over_positions, scale_later
from sanp.spm.recording import decided, note


class _Normalised(nn.Module):
    """A convolution and the batch norm that follows it, if any; other attributes are the convolution's own."""

    def __init__(self, name: str, conv: nn.Module, norm: nn.Module | None, *, norm_outside: bool) -> None:
        super().__init__()
        self.name = name
        self.conv = conv
        self.norm = norm
        self.norm_outside = norm_outside
        """the batch norm is a function that the network calls itself (outside_norm.py)"""

    def __getattr__(self, name: str) -> Any:
        # A stranger's forward may read `self.conv1.weight` or `.stride`; it gets what stood there before.
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "conv" or name.startswith("__"):  # how to copy or pickle this is not the convolution's to say
                raise
            return getattr(self.conv, name)

    def features(self, x: Tensor, *settings: Any, **named: Any) -> Tensor:
        """BatchNorm(f * x), all channels; the settings are what else the convolution takes, as an ``output_size``."""
        y: Tensor = self.conv(x, *settings, **named)
        return y if self.norm is None else self.norm(y)

    def scaled(self, y: Tensor, scale: Tensor) -> Tensor:
        """The features times (N, C), at once or after the batch norm outside."""
        if self.norm_outside:
            scale_later(self.name, y, scale)
            return y
        return y * over_positions(scale, y)


class GatedConv(_Normalised):
    """A convolution whose channels its SPM scales by their saliency or prunes."""

    def __init__(
        self, name: str, conv: nn.Module, norm: nn.Module | None, spm: SPM, *, norm_outside: bool = False
    ) -> None:
        super().__init__(name, conv, norm, norm_outside=norm_outside)
        self.spm = spm

    def forward(self, x: Tensor, *settings: Any, **named: Any) -> Tensor:  # (N, C_in, ...) -> (N, C_out, ...)
        """Eq. 5; every channel is computed here, the engine skips the pruned ones."""
        gates = self.spm(x)
        y = self.features(x, *settings, **named)
        note(self.name, gates)
        return self.scaled(y, gates.scale)


class FollowingConv(_Normalised):
    """A depthwise convolution: a channel whose input was pruned is pruned too, so it needs no SPM of its own."""

    def __init__(
        self,
        name: str,
        conv: nn.Module,
        norm: nn.Module | None,
        open_channels: Callable[[Mapping[str, Tensor]], Tensor],
        *,
        norm_outside: bool = False,
    ) -> None:
        super().__init__(name, conv, norm, norm_outside=norm_outside)
        self.open_channels = open_channels

    def forward(self, x: Tensor, *settings: Any, **named: Any) -> Tensor:  # (N, C, ...) -> (N, C', ...)
        """BatchNorm(f * x) where the input channel was open, zero elsewhere."""
        y = self.features(x, *settings, **named)
        before = decided()
        if before is None:
            raise SanpError(
                f"{self.name} follows the gates of the layers before it and runs only inside the forward of the whole "
                "gated network: call that"
            )
        applied = {name: gates.applied for name, gates in before.items()}
        return self.scaled(y, self.open_channels(applied))


class MovedNorm(nn.Identity):
    """Stands where a batch norm stood that has moved inside its convolution; its attributes can still be read here."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self._inside = (norm,)  # in a tuple, so that it is no submodule here

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return getattr(self._inside[0], name)

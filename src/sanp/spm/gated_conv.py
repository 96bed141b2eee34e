"""The gated convolution (paper 3.1, eq. 4): x_l = s · b · BatchNorm(f * x), exactly zero where b is 0."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.spm.module import SPM
from sanp.spm.outside_norm import scale_later, scale_of_map
from sanp.spm.recording import allowed, applied_of, decided, note


def _first(given: tuple[Any, ...], named: Mapping[str, Any]) -> Tensor:
    """The first argument of a call, whether or not it was given by its name."""
    x: Tensor = given[0] if given else next(iter(named.values()))
    return x


class _Normalised(nn.Module):
    """A convolution and the batch norm that follows it, if any; all other attributes are the convolution's."""

    def __init__(self, name: str, conv: nn.Module, norm: nn.Module | None, *, norm_outside: bool) -> None:
        super().__init__()
        self.name = name
        self.conv = conv
        self.norm = norm
        self.norm_outside = norm_outside
        """the network's own forward calls the batch norm as a function (see outside_norm.py)"""

    def __getattr__(self, name: str) -> Any:
        # The network's own forward may read `self.conv1.weight` or `.stride`; it gets those of the convolution.
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "conv" or name.startswith("__"):  # copying and pickling must not use the convolution's methods
                raise
            return getattr(self.conv, name)

    def features(self, *given: Any, **named: Any) -> Tensor:
        """BatchNorm(f * x) for all channels.

        ``given`` and ``named`` are the arguments of the convolution: x, and such as an ``output_size``.
        """
        y: Tensor = self.conv(*given, **named)
        return y if self.norm is None else self.norm(y)

    def scaled(self, y: Tensor, scale: Tensor) -> Tensor:
        """The features ``y`` times ``scale`` (N, C); unscaled if a batch norm outside follows, which scales later."""
        if self.norm_outside:
            scale_later(self.name, y, scale)
            return y
        return y * scale_of_map(scale, y)


class GatedConv(_Normalised):
    """A convolution with an SPM, which scales each output channel by its saliency or prunes it.

    ``name`` is the path of the convolution ``conv`` in its network. ``norm`` is the batch norm after it, or None. With
    ``norm_outside`` the network's own forward calls the batch norm as a function, and ``norm`` is None.
    """

    def __init__(
        self, name: str, conv: nn.Module, norm: nn.Module | None, spm: SPM, *, norm_outside: bool = False
    ) -> None:
        super().__init__(name, conv, norm, norm_outside=norm_outside)
        self.spm = spm

    def forward(self, *given: Any, **named: Any) -> Tensor:  # (N, C_in, ...) -> (N, C_out, ...)
        """Eq. 4. All channels are computed here and pruned ones set to zero; the engine skips pruned ones."""
        gates = self.spm(_first(given, named))
        at_most = allowed(self.name, gates)
        if at_most is not None:
            gates = gates.deciding(self.spm.strongest(gates, at_most))
        y = self.features(*given, **named)
        note(self.name, gates)
        return self.scaled(y, gates.scale)


def spms_of(network: nn.Module) -> dict[str, SPM]:
    """The SPM of every gated convolution inside a network, by the name of the layer."""
    return {module.name: module.spm for module in network.modules() if isinstance(module, GatedConv)}


class FollowingConv(_Normalised):
    """A depthwise convolution: it prunes the channels whose input was pruned, and needs no SPM of its own.

    ``open_channels`` computes the open channels (N, C) of this layer from the gates of the layers before it, by layer
    name. The other arguments are those of :class:`GatedConv`.
    """

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

    def forward(self, *given: Any, **named: Any) -> Tensor:  # (N, C, ...) -> (N, C', ...)
        """BatchNorm(f * x) for channels whose input is open, zero for the others."""
        y = self.features(*given, **named)
        before = decided()
        if before is None:
            raise SanpError(
                f"{self.name} follows the gates of the layers before it and runs only inside the forward of the whole "
                "gated network: call that"
            )
        return self.scaled(y, self.open_channels(applied_of(before)))


class MovedNorm(nn.Identity):
    """Takes the place of a batch norm that has moved inside its convolution: an identity with the norm's attributes."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self._inside = (norm,)  # in a tuple, so that it does not become a submodule

    def forward(self, *given: Any, **named: Any) -> Tensor:
        """The map that the norm was given; what it does was done inside the convolution."""
        return _first(given, named)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return getattr(self._inside[0], name)

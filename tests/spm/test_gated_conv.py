"""Eq. 4 by hand: s · b · BatchNorm(f * x), depthwise convolutions that follow, and scales that are applied later."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.spm.gated_conv import FollowingConv, GatedConv, MovedNorm
from sanp.spm.outside_norm import ScaleAfterNorm
from sanp.spm.recording import Gates, forward_of


class Fixed(nn.Module):
    """An SPM that says what the test says."""

    def __init__(self, saliency: list[float], applied: list[float]) -> None:
        super().__init__()
        self.saliency, self.applied = torch.tensor([saliency]), torch.tensor([applied])

    def forward(self, x: Tensor) -> Gates:
        applied = self.applied.expand(len(x), -1)
        return Gates(self.saliency.expand(len(x), -1), applied.round(), applied)


def layer(norm: nn.Module | None = None) -> GatedConv:
    return GatedConv("a", nn.Conv2d(3, 3, 1), norm, Fixed([2.0, 3.0, 4.0], [1.0, 0.0, 0.5])).eval()  # type: ignore[arg-type]


X = torch.randn(2, 3, 4, 4)


def test_features_are_scaled_after_the_batch_norm_and_pruned_maps_are_exactly_zero() -> None:
    norm = nn.BatchNorm2d(3)
    nn.init.uniform_(norm.weight)
    nn.init.uniform_(norm.bias)
    gated = layer(norm)
    expected = norm(gated.conv(X))
    out = gated(X)
    assert torch.equal(out[:, 0], 2 * expected[:, 0])
    assert not out[:, 1].any()
    assert torch.equal(out[:, 2], 2 * expected[:, 2])  # 4 x 0.5


def test_the_scale_is_in_the_precision_of_the_features() -> None:
    gated = layer()
    gated.conv.half()
    assert gated(X.half()).dtype == torch.float16


def test_other_attributes_are_the_convolutions_and_copying_is_not() -> None:
    gated = layer()
    assert gated.kernel_size == (1, 1) and gated.weight is gated.conv.weight
    with pytest.raises(AttributeError):
        gated.no_such_thing  # noqa: B018
    parametrized = GatedConv("a", nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 1)), None, gated.spm)
    assert isinstance(copy.deepcopy(parametrized), GatedConv)  # such a convolution brings a __deepcopy__ of its own


def test_a_following_convolution_is_open_where_its_input_is() -> None:
    conv = nn.Conv2d(3, 3, 1, groups=3)
    following = FollowingConv("b", conv, None, lambda applied: applied["a"])
    network = nn.Sequential(layer(), following)
    with forward_of(network):
        out = network(X)
    assert not out[:, 1].any() and out[:, 0].any() and conv.bias is not None
    with pytest.raises(SanpError, match="inside the forward of the whole gated network"):
        following(X)


def test_a_scale_waits_for_a_functional_batch_norm_of_its_features_only() -> None:
    gated = layer()
    gated.norm_outside = True
    mean, var = torch.zeros(3), torch.ones(3)
    with forward_of(gated), ScaleAfterNorm():
        y = gated(X)
        other = F.batch_norm(X, mean, var)
        out = F.batch_norm(y, mean, var, bias=torch.ones(3), weight=torch.ones(3))
    assert torch.equal(other, F.batch_norm(X, mean, var))
    assert not out[:, 1].any()
    assert torch.allclose(out[:, 0], 2 * F.batch_norm(y, mean, var, bias=torch.ones(3), weight=torch.ones(3))[:, 0])


def test_a_moved_norm_passes_features_on_and_lends_its_attributes() -> None:
    norm = nn.BatchNorm2d(3)
    moved = MovedNorm(norm)
    assert torch.equal(moved(X), X)
    assert moved.num_features == 3 and moved.weight is norm.weight
    assert not list(moved.parameters()) and not hasattr(moved, "no_such_thing")
    twin = copy.deepcopy(nn.ModuleList([norm, moved]))
    assert twin[1].weight is twin[0].weight

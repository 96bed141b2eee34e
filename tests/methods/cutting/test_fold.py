import pytest
import torch

from sanp.gating.count import ungated_cost
from sanp.gating.network import GatedNetwork
from sanp.methods.cutting.cut import CutNetwork
from sanp.methods.cutting.fold import cut_constant_gates, ungated
from sanp.methods.static import Static
from sanp.spm.module import SPMConfig
from tests.conftest import SmallNet
from tests.methods.conftest import Residual
from tests.methods.cutting.test_cut import scrambled

X = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def with_saliencies(gated: GatedNetwork, name: str, saliencies: torch.Tensor) -> None:
    predict = gated.layers[name].spm.saliency.predict
    with torch.no_grad():
        predict.w2.bias.copy_(saliencies)  # type: ignore[union-attr, operator]


def test_scales_fold_into_batch_norms_and_closed_channels_are_cut() -> None:
    net = scrambled(SmallNet())
    gated = Static().gate(net, X[:1], spm=SPMConfig()).eval()
    for closed, name in zip((4, 7, 8), gated.layers, strict=True):
        with_saliencies(gated, name, torch.cat((-torch.ones(closed), torch.linspace(0.5, 2, 16 - closed))))
    smaller = cut_constant_gates(gated, net, X[:1])
    assert isinstance(smaller, CutNetwork)
    with torch.no_grad():
        wanted = gated(X)
        torch.testing.assert_close(smaller.eval()(X), wanted, rtol=0, atol=1e-5 * wanted.abs().max().item())
    widths = [smaller.net.get_submodule(name).weight.shape[0] for name in gated.layers]  # type: ignore[union-attr]
    assert widths == [12, 9, 8]
    assert ungated_cost(smaller.net, X[:1]).dense_flops == int(smaller.cost.per_sample({}))


def test_a_channel_closed_in_one_branch_only_keeps_the_network_gated() -> None:
    net = scrambled(Residual())
    gated = Static().gate(net, X[:1], spm=SPMConfig()).eval()
    with_saliencies(gated, "outer", torch.tensor([-1.0] * 4 + [1.0] * 12))
    assert cut_constant_gates(gated, net, X[:1]) is None
    with_saliencies(gated, "stem", torch.tensor([-1.0] * 4 + [2.0] * 12))
    smaller = cut_constant_gates(gated, net, X[:1])
    assert smaller is not None
    with torch.no_grad():
        torch.testing.assert_close(smaller.eval()(X), gated(X), rtol=0, atol=1e-4)
    assert smaller.net.get_submodule("outer").weight.shape == (12, 16, 3, 3)


def test_a_network_without_its_gates_is_the_one_that_was_gated() -> None:
    net = scrambled(Residual())
    plain = ungated(Static().gate(net, X[:1], spm=SPMConfig()), net)
    assert plain is not None
    for key, tensor in net.state_dict().items():
        assert torch.equal(plain.state_dict()[key], tensor), key
    assert plain.eval()(X).shape == pytest.approx((6, 4))

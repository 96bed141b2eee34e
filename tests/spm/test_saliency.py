import pytest
import torch
from torch import Tensor

from sanp.spm.saliency import AT_A_TIME, PredictedSaliency, Standardize, StaticSaliency, descriptor


def predictor(bias: float | None = None, start: float = 1.0) -> PredictedSaliency:
    saliency = PredictedSaliency(2, 2, reduction=1, bias=bias, start=start, standardize=False)
    with torch.no_grad():
        saliency.w1.weight.copy_(torch.tensor([[1.0, -1.0], [0.5, 0.5]]))
        if start:
            saliency.w2.weight.copy_(torch.tensor([[2.0, 0.0], [-1.0, 3.0]]))
    return saliency


def map_with_means(*means: float) -> Tensor:
    """One image whose channels have these means, none of them constant."""
    return torch.stack([torch.tensor([[m - 1, m + 1], [m - 2, m + 2]]) for m in means])[None]


def test_the_descriptor_is_the_mean_over_positions_in_float32() -> None:
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 8.0]]]])
    assert torch.equal(descriptor(x), torch.tensor([[2.5, 2.0]]))
    assert descriptor(x.to(torch.bfloat16)).dtype == torch.float32
    assert torch.equal(descriptor(torch.tensor([[[1.0, 3.0]]])), torch.tensor([[2.0]]))  # 1-D maps


def test_saliency_is_w2_relu_w1_d() -> None:
    # d = (1, 3): W1 d = (-2, 2), relu (0, 2), W2 of that (0, 6); d = (3, 1): (2, 2), (2, 2), (4, 4)
    x = torch.cat([map_with_means(1, 3), map_with_means(3, 1)])
    assert torch.equal(predictor()(x), torch.tensor([[0.0, 6.0], [4.0, 4.0]]))
    assert torch.equal(predictor(bias=1.0)(x), torch.tensor([[1.0, 7.0], [5.0, 5.0]]))


def test_a_start_of_zero_gives_the_bias_exactly() -> None:
    assert torch.equal(predictor(bias=1.0, start=0.0)(map_with_means(-5, 9)), torch.ones(1, 2))


def test_the_paper_s_predictor_has_two_weights_and_no_bias() -> None:
    saliency = PredictedSaliency(8, 12, reduction=4, bias=None, start=1.0, standardize=False)
    shapes = {name: tuple(p.shape) for name, p in saliency.named_parameters()}
    assert shapes == {"w1.weight": (3, 8), "w2.weight": (12, 3)}
    assert saliency.flops == 3 * 8 + 12 * 3


def test_saliencies_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert predictor()(map_with_means(1, 3)).dtype == torch.float32


def test_standardizing_uses_the_batch_in_training_and_running_statistics_afterwards() -> None:
    layer = Standardize(1, centre=0.0, momentum=1.0)
    d = torch.tensor([[1.0], [3.0]])
    assert torch.allclose(layer(d), torch.tensor([[-1.0], [1.0]]), atol=1e-5)  # mean 2, deviation 1
    layer.eval()
    # momentum 1 keeps the batch's mean 2 and its unbiased variance 2
    assert torch.allclose(layer(torch.tensor([[4.0]])), torch.tensor([[2.0 / 2**0.5]]))
    layer.train()
    assert torch.isfinite(layer(torch.tensor([[4.0]]))).all()  # a batch of one uses the running statistics


def test_standardized_descriptors_vary_around_the_centre() -> None:
    layer = Standardize(2, centre=1.5)
    d = torch.tensor([[1.0, -4.0], [3.0, 4.0]])
    assert torch.allclose(layer(d), torch.tensor([[0.5, 0.5], [2.5, 2.5]]), atol=1e-5)


def test_static_saliencies_are_the_same_for_every_image() -> None:
    static = StaticSaliency(3, 5, reduction=1, bias=1.0, start=1.0)
    s = static(torch.randn(4, 3, 8, 8))
    assert s.shape == (4, 5)
    assert torch.equal(s, s[:1].expand(4, -1))
    s.sum().backward()
    assert static.vector.grad is not None and static.vector.grad.abs().sum() > 0


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(37, 64, 30, 30), (5, 3, 300, 301), (200, 192, 8, 8)])
def test_descriptors_of_a_few_images_at_a_time_are_those_of_all_at_once(
    shape: tuple[int, ...], layout: torch.memory_format
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(torch.bfloat16).contiguous(memory_format=layout)
    assert x.numel() > AT_A_TIME
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = descriptor(x)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found, x.float().sum((2, 3)) / (shape[2] * shape[3]))

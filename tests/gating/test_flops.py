import torch

from sanp.gating.flops import conv_flops, human, predictor_flops


def test_the_paper_s_formula_on_m_cifarnet_s_first_convolution() -> None:
    # 30 x 30 positions, 3 inputs, 3x3 taps, 64 outputs: 900 * (27 + 1) * 64
    assert conv_flops(900, 3, 9, 64) == 1_612_800


def test_the_same_formula_takes_one_count_per_sample() -> None:
    cost = conv_flops(4, torch.tensor([2.0, 0.0]), 9, torch.tensor([3.0, 5.0]))
    assert cost.tolist() == [4 * 19 * 3, 4 * 1 * 5]


def test_an_spm_costs_a_mean_and_two_layers() -> None:
    assert predictor_flops(positions=16, inputs=8, layers=60) == 188


def test_counts_read_as_people_write_them() -> None:
    assert [human(n) for n in (174_538_368, 1.82e9, 960, 43_200)] == ["174.5M", "1.82G", "960", "43.2k"]

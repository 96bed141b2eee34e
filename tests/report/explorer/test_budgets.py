import numpy as np
import pytest
import torch

import sanp
from sanp.core.modules import evaluating
from sanp.gating.dial import Dial
from sanp.gating.thresholds import kept_on
from sanp.methods import METHODS
from sanp.report.explorer.budgets import Setting, dial_settings, find_settings, measure_settings
from sanp.spm.module import SPMConfig
from tests.conftest import SmallNet


def test_settings_halve_the_widest_gap_until_it_is_narrow() -> None:
    asked = []

    def cost(threshold: float) -> float:
        asked.append(threshold)
        return min(1.0, max(0.0, 0.5 - threshold))

    found = find_settings(cost, 40)
    shares = [setting.kept for setting in found]
    assert shares == sorted(shares) and Setting(0.5, 0.0) in found
    assert shares[-1] == 1.0 and shares[0] < 0.07
    assert max(np.diff(shares)) <= 0.0625 and len(asked) <= 40


def test_thresholds_without_effect_leave_the_trained_setting_alone() -> None:
    assert find_settings(lambda _: 0.4, 40) == (Setting(0.4, 0.0),)


def test_settings_of_a_top_k_method_differ_in_cost_and_leave_its_density() -> None:
    gated = METHODS["fixed_k"].gate(SmallNet(), torch.randn(1, 3, 8, 8), spm=SPMConfig())
    before = [layer.spm.binarize.density for layer in gated.layers.values()]
    with evaluating(gated):
        settings = measure_settings(gated, torch.randn(4, 3, 8, 8))
    assert len(settings) > 3
    assert [layer.spm.binarize.density for layer in gated.layers.values()] == before


def test_gates_that_were_left_at_levels_of_their_own_are_shifted_together() -> None:
    gated = sanp.gate(SmallNet(), torch.randn(1, 3, 8, 8)).eval()
    images = torch.randn(4, 3, 8, 8)
    gated.set_budget(0.6, images)
    levels = [-1.0, 0.3][: len(gated.layers)] + [0.0] * (len(gated.layers) - 2)
    for layer, level in zip(gated.layers.values(), levels, strict=True):
        layer.spm.threshold.fill_(level)
    settings = measure_settings(gated, images)
    assert [layer.spm.threshold.item() for layer in gated.layers.values()] == pytest.approx(levels)
    assert {setting.kept for setting in settings if setting.shift == 0} == {kept_on(gated, [images])}


def test_a_dial_is_the_whole_slider() -> None:
    dial = Dial((0.2, 0.3, 0.6), (0.5, 0.3, 0.0))
    settings = dial_settings(dial, 0.3)
    assert [setting.kept for setting in settings] == [0.2, 0.3, 0.6]
    assert [setting.shift for setting in settings] == pytest.approx([0.2, 0.0, -0.3])

"""The numbers behind the charts, worked out by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

import sanp
from sanp.core.errors import SanpError
from sanp.core.modules import evaluating
from sanp.gating.thresholds import mean_cost
from sanp.methods import METHODS
from sanp.report.charts.channels import agreement, in_order
from sanp.report.charts.paper_row import paper_row
from sanp.report.charts.trade_off import pareto
from sanp.report.charts.training import stages
from sanp.report.epochs import read_epochs
from sanp.report.explorer.budgets import Setting, _explore, measure
from sanp.report.explorer.explorer import Answered, breaking_point
from sanp.report.run_data import short_names
from sanp.spm.module import SPMConfig
from tests.conftest import SmallNet


def test_the_front_holds_the_points_that_no_other_beats() -> None:
    # (5, .9) is beaten by (4, .9); (4, .7) by (3, .8); (1, .5), (3, .8), (4, .9), (9, .95) stay.
    points = [(5.0, 0.9), (1.0, 0.5), (4.0, 0.9), (4.0, 0.7), (9.0, 0.95), (3.0, 0.8)]
    assert pareto(points) == [1, 5, 2, 4]
    assert pareto([(2.0, 0.5), (2.0, 0.5)]) == [0, 1]


def test_agreement_is_the_chance_that_two_images_decide_alike() -> None:
    # Channels 0 and 3 are the same for all and do not count.
    shares = np.array([[1.0, 0.5, 1.0, 0.0], [1.0, 0.25, 0.0, 0.0]])
    # 0 and 0: (.5 .5 + .5 .5 + 1) / 2; 0 and 1: (.5 .25 + .5 .75 + 0) / 2; 1 and 1: (.0625 + .5625 + 1) / 2.
    assert agreement(shares).tolist() == [[0.75, 0.25], [0.25, 0.8125]]
    assert agreement(np.ones((2, 3))).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_channels_are_ordered_by_the_class_that_uses_them_most() -> None:
    shares = np.array([[0.0, 0.2, 1.0, 0.9, 0.5], [0.0, 0.8, 1.0, 0.3, 0.1]])
    # 2 is always open; class 0 uses 3 (mean .6) and 4 (mean .3) most, class 1 uses 1; 0 is never open.
    assert in_order(shares).tolist() == [2, 3, 4, 1, 0]


def test_steps_are_counted_through_all_stages(tmp_path: Path) -> None:
    lines = [("pretrain", 10), ("pretrain", 20), ("joint", 10), ("joint", 20), ("joint", 5)]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"stage": "{stage}", "step": {step}, "cost": null}}\n' for stage, step in lines))
    found = read_epochs(tmp_path)
    assert [epoch.step for epoch in found] == [10, 20, 30, 40, 45]
    assert found[0].cost is None
    assert stages(found) == [(0, 20, "pretrain"), (20, 45, "joint")]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"stage": "joint"}', '{"stage": "joint", "step": null}', '{"stage": "joint", "step": -1}']
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"stage": "a", "step": 1}}\n{line}\n')
    with pytest.raises(SanpError, match=r"line 2.*run it anew"):
        read_epochs(tmp_path)


def test_runs_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    assert short_names([tmp_path / "a" / "run", tmp_path / "b" / "other"]) == ["run", "other"]
    assert short_names([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == ["a/run", "b/run"]
    with pytest.raises(SanpError, match="twice"):
        short_names([tmp_path, tmp_path / "x" / ".."])


def test_the_papers_row_is_the_nearest_in_cost() -> None:
    # Table 1 keeps 163/501 = 32.5 % of ResNet-18, table 3 keeps 333/501 = 66.5 %.
    near, far = paper_row("cifar10", "resnet18", "sanp", 0.35), paper_row("cifar10", "resnet18", "sanp", 0.6)
    assert near is not None and (near.table, near.error, round(near.pruned, 3)) == (1, 0.0564, 0.675)
    assert far is not None and (far.table, far.error, round(far.pruned, 3)) == (3, 0.0541, 0.335)
    assert paper_row("digits", "resnet18", "sanp", 0.35) is None
    assert paper_row("cifar100", "vgg19", "fbs", 0.35) is None


def test_settings_halve_the_widest_gap_until_it_is_narrow() -> None:
    asked = []

    def cost(threshold: float) -> float:
        asked.append(threshold)
        return min(1.0, max(0.0, 0.5 - threshold))

    found = _explore(cost, 40)
    shares = [setting.share for setting in found]
    assert shares == sorted(shares) and Setting(0.5, 0.0) in found
    assert shares[-1] == 1.0 and shares[0] < 0.07
    assert max(np.diff(shares)) <= 0.0625 and len(asked) <= 40


def test_thresholds_without_effect_leave_the_trained_setting_alone() -> None:
    assert _explore(lambda _: 0.4, 40) == (Setting(0.4, 0.0),)


def _answers(labels: list[int]) -> list[Answered]:
    return [
        Answered(Setting(place / 10, 0.0), np.eye(3, dtype=np.float32)[label], 0.0)
        for place, label in enumerate(labels)
    ]


def test_the_answer_breaks_where_it_first_changes_on_the_way_down() -> None:
    answers = _answers([2, 1, 0, 1, 1, 0])
    for start, share in ((4, 0.2), (5, 0.2), (1, 0.0)):  # 5 is wrong itself: down from 4, the dearest right one
        broken = breaking_point(answers, 1, start)
        assert broken is not None and broken.setting.share == share
    assert breaking_point(_answers([1, 1, 1]), 1, 2) is None
    assert breaking_point(_answers([1, 1, 1]), 0, 2) is None


def test_settings_of_a_top_k_method_differ_in_cost_and_leave_its_density() -> None:
    gated = METHODS["fixed_k"].gate(SmallNet(), torch.randn(1, 3, 8, 8), spm=SPMConfig())
    before = [layer.spm.binarize.density for layer in gated.layers.values()]
    with evaluating(gated):
        settings = measure(gated, torch.randn(4, 3, 8, 8))
    assert len(settings) > 3
    assert [layer.spm.binarize.density for layer in gated.layers.values()] == before


def test_gates_that_were_left_at_levels_of_their_own_are_shifted_together() -> None:
    gated = sanp.gate(SmallNet(), torch.randn(1, 3, 8, 8)).eval()
    images = torch.randn(4, 3, 8, 8)
    gated.set_budget(0.6, images)
    levels = [-1.0, 0.3][: len(gated.layers)] + [0.0] * (len(gated.layers) - 2)
    for layer, level in zip(gated.layers.values(), levels, strict=True):
        layer.spm.threshold.fill_(level)
    settings = measure(gated, images)
    assert [layer.spm.threshold.item() for layer in gated.layers.values()] == pytest.approx(levels)
    assert {setting.share for setting in settings if setting.shift == 0} == {mean_cost(gated, [images])}

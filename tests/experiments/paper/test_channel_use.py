from pathlib import Path
from typing import Any

import pytest
import torch
from scripts import study
from torch import Tensor, nn

import sanp
from sanp.experiments.documents import filled
from sanp.experiments.paper.channel_use import channel_use, last_block
from sanp.experiments.results import append, read_results
from tests.conftest import TwoConvs
from tests.tools import tiny_run

ROOT = Path(__file__).parents[3]


class Bright(nn.Module):
    """A saliency of 1 for channels that are open, -1 for others: channel 1 opens for images brighter than 0."""

    flops = 0

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        signs = torch.ones(len(x), self.channels)
        signs[:, 1] = torch.where(x.mean((1, 2, 3)) > 0, 1.0, -1.0)
        signs[:, 2:] = torch.tensor([1.0, -1.0])
        return signs


def gated_by_brightness() -> sanp.GatedNetwork:
    """The first convolution (2 channels) computes everything; of the second one's 4, channel 1 asks the image."""
    net = TwoConvs()
    with torch.no_grad():
        net.first.weight.zero_()
        net.first.weight[:, 0, 1, 1] = torch.tensor([1.0, 1.0])  # both channels: the red pixels
        net.second.weight.fill_(1.0)
        net.second.bias.zero_()  # type: ignore[union-attr]
    return sanp.gate(net, torch.zeros(1, 3, 4, 4), skip=["first"])


def test_channel_use_counts_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 images: two of the third class are bright, as are all of the first; the second class is dark."""
    gated = gated_by_brightness().eval()
    spm = gated.layers["second"].spm
    monkeypatch.setattr(spm, "saliency", Bright(4))
    red = torch.cat([torch.full((100,), 2.0), torch.full((100,), -1.0), torch.full((2,), 4.0), torch.full((98,), -1.0)])
    x = torch.zeros(300, 3, 4, 4)
    x[:, 0] = red[:, None, None]
    y = torch.tensor([0] * 100 + [1] * 100 + [2] * 100)
    used = channel_use(gated, [(x[:150], y[:150]), (x[150:], y[150:])], 3)
    # After the ReLU a dark image's maps are 0, and so is the mean that the gate sees.
    assert used.open["first"].tolist() == [1, 1]
    assert used.open["second"].tolist() == pytest.approx([1, 102 / 300, 1, 0])
    assert used.depends_deeper_half == 1 / 4  # the deeper half is the second convolution
    assert used.block_channels == 6 and sorted(set(used.last_block.tolist())) == [4, 5]
    assert used.last_block.tolist() == [5] * 100 + [4] * 100 + [5] * 2 + [4] * 98
    both = 2 / (1 + 1e-5) ** 0.5  # two input channels, each the red pixels through a batch norm that has seen nothing
    expected = torch.tensor([[2.0, 2.0, 2.0, 0.0], [0.0] * 4, [0.08, 0.08, 0.08, 0.0]]) * both
    assert torch.allclose(used.activation.float(), expected, atol=1e-5)


def test_the_last_block_is_a_residual_block_or_what_follows_the_last_stride() -> None:
    def names(backbone: str) -> list[str]:
        net = sanp.backbones.build(backbone, num_classes=10)
        cost = sanp.gate(net, torch.zeros(1, 3, 32, 32)).cost
        return [layer.name for layer in last_block(tuple(each for each in cost.layers if each.kind == "conv"))]

    assert names("resnet18") == ["blocks.7.conv1", "blocks.7.conv2"]
    assert len(names("m_cifarnet")) == 3  # the sixth convolution has a stride of 2
    assert len(names("vgg19")) == 4


@pytest.mark.filterwarnings("ignore::sanp.core.errors.BudgetWarning")  # one epoch of a tiny network
def test_every_contender_runs_once_a_seed_from_one_dense_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_run.install(monkeypatch)
    sanp.experiments.run.train(tiny_run.recipe(method="dense", budget="100%"), tmp_path / "dense")
    fit = {"pretrain_epochs": 0, "warmup_epochs": 1, "joint_epochs": 1, "precision": "fp32", "norm_batches": 2}
    setting = {"backbone": "tiny", "batch_size": 32, "threads": 1, "budget": "50%", "test_every": 0, "fit": fit}
    results, dense = tmp_path / "results.jsonl", tmp_path / "dense" / "model.safetensors"
    for _ in range(2):  # the second time there is nothing to do
        study.study_adaptiveness(tmp_path / "runs", results, str(dense), 256, [0, 1], setting=setting)
    lines = list(read_results(results))
    assert [(line["name"], line["seed"]) for line in lines] == [(name, s) for s in (0, 1) for name in study.CONTENDERS]
    assert len({line["dense_error"] for line in lines}) == 1
    for line in lines:
        assert line["seconds"] > 0
        assert 0 <= line["depends_deeper_half"] <= line["sometimes_deeper_half"]  # 1 to 99 % is the stricter claim
        assert (line["depends_deeper_half"] == 0) or line["name"] != "static"
    plain = [line["name"] for line in lines if not line["config"]["spm"]["standardize"]]
    assert plain == 2 * ["sanp-plain-descriptors"]
    for line in lines:
        assert line["config"]["fit"]["settle"] == (0.3 if line["name"] == "sanp-noise" else None)
        assert line["config"]["spm"]["centre"] == ("centre-1" in line["name"])


def test_the_table_has_means_and_spreads(tmp_path: Path) -> None:
    """10, 12 and 14 % in error: a mean of 12, a deviation of 2."""
    for seed in range(3):
        values: dict[str, Any] = {"error": 0.10 + 0.02 * seed, "kept": 0.25, "depends_deeper_half": 0.3}
        append(tmp_path / "lines", {"name": "sanp", "seed": seed, "images": 10_000, "epochs": [0, 1, 4], **values})
    assert study.adaptiveness_table(read_results(tmp_path / "lines")).splitlines()[2] == (
        "| sanp | 10,000, 5 | 3 | 12.00 ± 2.00 | 25.00 ± 0.00 | 30.00 ± 0.00 |"
    )


def test_the_results_page_s_table_is_what_the_lines_say() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = study.adaptiveness_table(read_results(ROOT / "results" / "adaptiveness.jsonl"))
    assert filled(text, "adaptiveness", table) == text

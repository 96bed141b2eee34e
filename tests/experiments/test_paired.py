import json
from pathlib import Path

import pytest
import torch

import sanp
from sanp.experiments.paired import PairedRuns, compare_paired, paired
from sanp.experiments.run import train
from sanp.experiments.run_folder import evaluation_batches, load_run
from tests.cli.conftest import Run, run
from tests.tools import tiny_run

__all__ = ["run"]  # the fixture


def test_only_images_that_one_alone_has_right_count() -> None:
    first = torch.tensor([1, 1, 1, 1, 1, 0, 0, 1], dtype=torch.bool)
    second = torch.tensor([0, 0, 0, 0, 0, 1, 0, 1], dtype=torch.bool)
    found = paired(first, second)
    assert (found.images, found.first_alone, found.second_alone) == (8, 5, 1)
    assert found.as_dict()["deviations"] == 1.63  # 4 / sqrt(6)
    assert found.chance == pytest.approx(2 * (1 + 6) / 64)  # none or one of six coins, on either side


def test_networks_that_answer_alike_do_not_differ() -> None:
    answers = torch.tensor([1, 0, 1], dtype=torch.bool)
    assert paired(answers, answers).deviations == 0
    assert paired(answers, answers).chance == 1
    # What SciPy's binomtest(246, 324 + 246).pvalue gives.
    assert PairedRuns(images=10_000, first_alone=324, second_alone=246).chance == pytest.approx(
        0.0012394733857, rel=1e-9
    )


def test_the_command_pairs_the_first_run_with_each_other_one(run: Run, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    short = {"pretrain_epochs": 1, "warmup_epochs": 1, "joint_epochs": 1, "precision": "fp32"}
    folders = [tmp_path / method for method in ("l1", "random", "other")]
    for folder, method in zip(folders, ("l1", "random", "l1"), strict=True):
        held_out = {"validate": 64, "report_on": "held-out"} if folder.name == "other" else {}
        train(tiny_run.recipe(method=method, fit=short, **held_out), folder)
    file = tmp_path / "paired.jsonl"
    code, out, _ = run("compare", *map(str, folders[:2]), "--paired", "--results", str(file))
    dataset = tiny_run.squares()
    right = [
        torch.cat([load_run(folder, dataset).eval()(x).argmax(1) == y for x, y in evaluation_batches(dataset)])
        for folder in folders[:2]
    ]
    alone = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    assert code == 0 and f"| random | 128 | {alone[0]} | {alone[1]} |" in out
    line = json.loads(file.read_text())
    assert line["runs"] == ["l1", "random"] and (line["first_alone"], line["second_alone"]) == alone
    with pytest.raises(sanp.SanpError, match="other was evaluated on other images than"):
        compare_paired([folders[0], folders[2]])
    with pytest.raises(sanp.SanpError, match="takes two runs"):
        compare_paired(folders[:1])

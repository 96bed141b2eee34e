"""A run's metrics, report, study and inputs that were received."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file as numpy_save_file

import sanp
from sanp.core.limits import MOST_EPOCHS, MOST_LAYERS, MOST_STAGES
from sanp.experiments import table
from sanp.experiments.inputs import Inputs, read_inputs
from sanp.experiments.metrics import ProgressLog, read_metrics
from sanp.experiments.run_folder import read_report
from sanp.report.page import write_page
from sanp.report.run_data import read_runs
from tests.cli.conftest import Run
from tests.core.test_files import within

HUGE = 10**400
DIGITS = "9" * 5000
DEEP = 100_000


def test_a_large_number_in_metrics_or_in_the_state_of_the_log_is_refused(tmp_path: Path) -> None:
    for text in (f'{{"stage": "joint", "step": {HUGE}}}', f'{{"stage": "joint", "loss": {DIGITS}}}', "[" * DEEP):
        (tmp_path / "metrics.jsonl").write_text(text)
        with pytest.raises(sanp.SanpError, match="line 1 is not what a run writes"):
            read_metrics(tmp_path)
    for name in ("lines", "steps", "loss", "right"):
        with pytest.raises(sanp.SanpError, match=f"the saved log's {name} is"):
            ProgressLog(tmp_path, {name: HUGE})


def test_metrics_of_more_stages_or_epochs_than_any_run_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"stage": "{number}", "step": 1}}\n' for number in range(3000)))
    with pytest.raises(sanp.SanpError, match="3000 stages"):
        read_metrics(tmp_path)
    path.write_text("{}\n" * 10_001)
    with pytest.raises(sanp.SanpError, match="10001 lines"):
        read_metrics(tmp_path)


@pytest.mark.parametrize("value", [1e-320, 0.5, 1e300, HUGE, float("inf"), "1", -1])
def test_dense_flops_that_no_network_has_are_refused(finished: Path, value: object) -> None:
    found = json.loads((finished / "report.json").read_text())
    (finished / "report.json").write_text(json.dumps({**found, "dense_flops": value}))
    with pytest.raises(sanp.SanpError, match="is damaged"):
        table.cells(table.read_rows([finished]))


@pytest.mark.parametrize("confusion", [[[]], [[1, 2, 3]], [[-1] * 4] * 4], ids=range(3))
def test_answers_that_no_evaluation_counts_are_refused(finished: Path, confusion: list[list[int]]) -> None:
    found = json.loads((finished / "report.json").read_text())
    (finished / "report.json").write_text(json.dumps({**found, "confusion": confusion}))
    with pytest.raises(sanp.SanpError, match="confusion is not square, or counts fewer than no images"):
        read_runs([finished])


@pytest.mark.parametrize("name", ["channels", "never", "sometimes", "always"])
def test_a_layer_whose_channels_do_not_add_up_is_refused(finished: Path, name: str) -> None:
    found = json.loads((finished / "report.json").read_text())
    found["layers"][0][name] += 10**9
    (finished / "report.json").write_text(json.dumps(found))
    with pytest.raises(sanp.SanpError, match="more or fewer channels than are never, sometimes and always pruned"):
        read_runs([finished])


def test_a_report_of_ten_thousand_layers_is_refused_at_once(finished: Path) -> None:
    found = json.loads((finished / "report.json").read_text())
    found["layers"] = [{**found["layers"][0], "name": str(number)} for number in range(10_000)]
    (finished / "report.json").write_text(json.dumps(found))
    read_report(finished)
    with within(20), pytest.raises(sanp.SanpError, match="more than 1000 layers"):
        read_runs([finished])


def test_a_page_of_a_report_and_metrics_at_their_limits_takes_less_than_twenty_seconds(finished: Path) -> None:
    found = json.loads((finished / "report.json").read_text())
    found["layers"] = [{**found["layers"][0], "name": str(number)} for number in range(MOST_LAYERS)]
    (finished / "report.json").write_text(json.dumps(found))
    each = MOST_EPOCHS // MOST_STAGES
    lines = (
        {"stage": f"stage {number // each}", "epoch": 1, "step": number + 1, "loss": 1.0, "accuracy": 0.5, "cost": 0.5}
        for number in range(MOST_EPOCHS)
    )
    (finished / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    start = time.process_time()
    with within(200):
        write_page([finished], finished / "report.html")
    assert time.process_time() - start < 20
    assert "</html>" in (finished / "report.html").read_text()


@pytest.mark.parametrize("flops", [5e-324, 0.5, float("nan"), -1.0, 1e300])
def test_flops_of_an_image_that_no_image_has_are_refused(finished: Path, flops: float) -> None:
    found = json.loads((finished / "report.json").read_text())
    found["per_sample"] = [flops, *found["per_sample"][1:]]
    (finished / "report.json").write_text(json.dumps(found))
    with pytest.raises(sanp.SanpError, match="per_sample holds what is not a count"):
        read_runs([finished])


def test_a_study_with_such_flops_is_made_again(finished: Path) -> None:
    study = read_runs([finished])[0].study
    assert study is not None
    path = finished / "study.safetensors"
    with safe_open(path, framework="numpy") as file:
        arrays, header = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    arrays["flops"] = np.where(np.arange(len(arrays["flops"])) == 0, 1e-30, arrays["flops"])
    numpy_save_file(arrays, path, header)
    again = read_runs([finished])[0].study
    assert again is not None
    assert np.array_equal(again.flops, study.flops)


def test_inputs_that_ask_for_much_are_refused(finished: Path) -> None:
    kept = {"image_size": 8, "mean": [0.4] * 3, "std": [0.1] * 3, "classes": ["a", "b"]}
    for change in ({"image_size": HUGE}, {"mean": [HUGE] * 3}, {"classes": ["a"] * 100_001}, {"std": []}):
        (finished / "inputs.json").write_text(json.dumps({**kept, **change}))
        with pytest.raises(sanp.SanpError, match="is damaged"):
            read_inputs(finished)
    assert Inputs(image_size=8, mean=(0.0,), std=(1.0,), classes=("a",)).num_classes == 1


KEPT = {"image_size": 8, "mean": [0.4] * 3, "std": [0.1] * 3, "classes": ["a", "b", "c", "d"]}


@pytest.mark.parametrize(
    "change",
    [{"std": [5e-324] * 3}, {"mean": [1e300] * 3}, {"mean": [0.4] * 17, "std": [0.1] * 17}, {"classes": "abcd"},
     {"classes": ["x" * 1001, "b"]}, {"classes": [1, 2]}, {"image_size": 8.7}, {"image_size": True}, {"mean": []}],
)  # fmt: skip
def test_inputs_that_no_data_set_has_are_refused(finished: Path, change: dict[str, Any]) -> None:
    (finished / "inputs.json").write_text(json.dumps({**KEPT, **change}))
    with pytest.raises(sanp.SanpError, match="is damaged"):
        read_inputs(finished)


@pytest.mark.parametrize("change", [{"image_size": 4096}, {"mean": [0.4], "std": [0.1]}])
@pytest.mark.parametrize("command", ["export", "inspect", "predict"])
def test_inputs_that_are_not_the_networks_are_refused_before_any_work(
    finished: Path, run: Run, change: dict[str, Any], command: str
) -> None:
    (finished / "inputs.json").write_text(json.dumps({**KEPT, **change}))
    with within(10):
        code, _, error = run(command, str(finished), *({"export": ["o.onnx"], "predict": ["a.png"]}.get(command, [])))
    assert code == 2
    assert "the network was pruned on 3x8x8" in " ".join(error.split())


@pytest.mark.parametrize("name", ["x" * 1001, 3, None, ["a"]])
def test_a_layer_whose_name_is_none_is_refused(finished: Path, name: object) -> None:
    found = json.loads((finished / "report.json").read_text())
    found["layers"][0]["name"] = name
    (finished / "report.json").write_text(json.dumps(found))
    with pytest.raises(sanp.SanpError, match="is no name of a layer"):
        read_runs([finished])


def test_a_stage_of_a_million_letters_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"stage": "x" * 1_000_000, "step": 1}))
    with pytest.raises(sanp.SanpError, match="name has 1000000 letters"):
        read_metrics(tmp_path)

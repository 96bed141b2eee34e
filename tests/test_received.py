"""A run folder or file that was received: links, pipes, sizes and numbers that nobody wrote in good faith."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file as numpy_save_file
from safetensors.torch import load_file, save_file

import sanp
from sanp.checkpoint import NETWORK_KEY
from sanp.core.limits import MOST_EPOCHS, MOST_LAYERS, MOST_STAGES
from sanp.data.decode import decode
from sanp.data.digits import read_digits
from sanp.engine import tuning_cache
from sanp.engine.timing import Timing
from sanp.experiments import table
from sanp.experiments.inputs import Inputs, read_inputs
from sanp.experiments.metrics import ProgressLog, read_metrics
from sanp.experiments.recipe import make_recipe, read_recipe
from sanp.experiments.run import resumed, train
from sanp.experiments.run_folder import read_report
from sanp.experiments.state import Saved
from sanp.gating.amount import Amount, parse_budget
from sanp.report.page import write_page
from sanp.report.run_data import read_runs
from tests.core.test_files import within
from tests.tools import tiny_run

HUGE = 10**400
DIGITS = "9" * 5000
DEEP = 100_000


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a short run."""
    tiny_run.install(monkeypatch)
    fit = {"pretrain_epochs": 1, "warmup_epochs": 0, "joint_epochs": 1, "precision": "fp32", "norm_batches": 1}
    return train(tiny_run.recipe(fit=fit), tmp_path / "run").folder


@pytest.mark.parametrize("name", ["state", "tensorboard", "metrics.jsonl", ".lock"])
def test_a_resumed_run_writes_nothing_outside_its_folder(finished: Path, name: str) -> None:
    outside = finished.parent / "outside"
    outside.mkdir()
    (outside / "metrics.jsonl").write_text("precious")
    (finished / "model.safetensors").unlink()
    (finished / ".lock").unlink()
    for path in (finished / "metrics.jsonl", *finished.glob("tensorboard/*")):
        path.unlink()
    if (finished / "tensorboard").exists():
        (finished / "tensorboard").rmdir()
    (finished / name).symlink_to(outside if "." not in name else outside / "metrics.jsonl")
    with pytest.raises(sanp.SanpError, match=r"link|ordinary file"):
        resumed(finished)
    assert [path.name for path in outside.iterdir()] == ["metrics.jsonl"]
    assert (outside / "metrics.jsonl").read_text() == "precious"


@pytest.mark.parametrize("name", ["report.json", "config.toml", "metrics.jsonl", "inputs.json", "study.safetensors"])
def test_a_pipe_in_a_run_folder_does_not_hang_a_report(finished: Path, name: str) -> None:
    (finished / name).unlink(missing_ok=True)
    os.mkfifo(finished / name)
    with within(20):
        try:
            read_runs([finished])
        except sanp.SanpError as error:
            assert name in str(error)


def test_a_tuning_file_that_is_a_pipe_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANP_TUNING", str(tmp_path))
    library = tmp_path / "library.so"
    library.write_bytes(b"")
    path = tuning_cache.cache_file(library)
    assert path is not None
    os.mkfifo(path)
    with within(5):
        assert tuning_cache.read_timings(library) == {}
        tuning_cache.add(library, {"a": Timing({0: 1.0, 1: 2.0}, 0.0, 2)})


def test_the_home_folder_in_sanp_tuning_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SANP_TUNING", "~/tuning")
    library = tmp_path / "library.so"
    library.write_bytes(b"")
    path = tuning_cache.cache_file(library)
    assert path is not None
    assert path.parent == tmp_path / "tuning"


def with_gates(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Writes a gated network to ``path`` whose header's gates were changed."""
    gated = sanp.gate(tiny_run.Tiny(), torch.zeros(1, 3, 8, 8))
    gated.set_budget("60%", torch.randn(8, 3, 8, 8))
    sanp.save(gated, path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    own = json.loads(header["__metadata__"][NETWORK_KEY])
    change(own["gates"])
    header["__metadata__"][NETWORK_KEY] = json.dumps(own)
    written = json.dumps(header).encode()
    path.write_bytes(len(written).to_bytes(8, "little") + written + data[8 + size :])


@pytest.mark.parametrize("shape", [[1, 3, 1600, 1600], [80000, 3, 5, 5], [2**62, 3, 2**62, 8], [HUGE, 3, 8, 8]])
def test_a_header_that_asks_for_a_large_example_is_refused_at_once(tmp_path: Path, shape: list[int]) -> None:
    path = tmp_path / "net.safetensors"
    with_gates(path, lambda gates: gates.update(input_shapes=[shape]))
    with within(5), pytest.raises(sanp.SanpError, match=r"asks for an example|gates are damaged"):
        sanp.load(path, sanp.backbones.build("m_cifarnet", num_classes=10))  # gated before any tensor is compared


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), 1e300, HUGE, "x", None, [1]])
def test_a_threshold_that_no_calibration_gives_is_refused(tmp_path: Path, threshold: object) -> None:
    with_gates(tmp_path / "net", lambda gates: gates["thresholds"].update({"features.0": threshold}))
    with pytest.raises(sanp.SanpError, match="thresholds or budget are damaged"):
        sanp.load(tmp_path / "net", tiny_run.Tiny())


@pytest.mark.parametrize(
    "budget",
    [{"value": v, "unit": u} for v, u in ((-1.0, "share"), (7.0, "share"), (float("nan"), "flops"), (HUGE, "flops"),
                                          (0.5, "pounds"), ("x", "share"), (True, "share"), (0.5, ["share"]))],
)  # fmt: skip
def test_a_budget_in_a_header_that_no_one_can_give_is_refused(tmp_path: Path, budget: dict[str, Any]) -> None:
    with_gates(tmp_path / "net", lambda gates: gates.update(budget=budget))
    with pytest.raises(sanp.SanpError, match="thresholds or budget are damaged"):
        sanp.load(tmp_path / "net", tiny_run.Tiny())


@pytest.mark.parametrize(
    "budget",
    ["1e999999M", "1e9999999999999999999%", "1e-999999M", HUGE, -HUGE, 10**5000, f"{DIGITS}M", f"{DIGITS}%",
     f"0.{DIGITS}x", Amount(float("nan"), "share"), Amount(2.0, "share"), Amount(1.0, "x")],  # type: ignore[arg-type]
    ids=range(12),
)  # fmt: skip
def test_a_budget_of_any_size_is_read_or_refused_in_one_line(budget: object) -> None:
    with pytest.raises(sanp.SanpError, match="wanted: a share") as found:
        parse_budget(budget)
    assert len(str(found.value)) < 400


RECIPES = {
    "many digits": f"seed = {DIGITS}",
    "hexadecimal": f"seed = 0x{'f' * 5000}",
    "deep lists": "data = " + "[" * DEEP + "]" * DEEP,
    "deep tables": "data = " + "{a=" * DEEP + "1" + "}" * DEEP,
    "a large setting": f"[fit]\nlr = {HUGE}",
    "a large count": f"[fit]\njoint_epochs = {HUGE}",
    "a large batch": f"batch_size = 0x{'f' * 5000}",
    "a large format": f"format = 0x{'f' * 5000}",
    "a large size": f"image_size = {HUGE}",
    "infinite": "[fit]\nlr = inf",
    "not a number": "[controller]\nstrength = nan",
    "a number for text": f"data = 0x{'f' * 5000}",
    "a number for a name": f"preset = 0x{'f' * 5000}",
    "a number for a method": f"method = 0x{'f' * 5000}",
    "a number for a section": f"fit = 0x{'f' * 5000}",
    "a long name": f'backbone = "{"b" * 100000}"',
}


@pytest.mark.parametrize("text", RECIPES.values(), ids=RECIPES)
def test_a_recipe_with_a_strange_number_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with within(20), pytest.raises(sanp.SanpError) as found:
        make_recipe(read_recipe(path), "recipe.toml")
    assert 10 < len(str(found.value)) < 600


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


@pytest.mark.parametrize("setting", ["most", "noise", "bias", "centre", "slope"])
def test_a_setting_that_single_precision_cannot_hold_is_refused(setting: str) -> None:
    with pytest.raises(sanp.SanpError, match=f"{setting} is 1e.300: give a number of at most"):
        sanp.SPMConfig(**{setting: 1e300})


def test_inputs_that_ask_for_much_are_refused(finished: Path) -> None:
    kept = {"image_size": 8, "mean": [0.4] * 3, "std": [0.1] * 3, "classes": ["a", "b"]}
    for change in ({"image_size": HUGE}, {"mean": [HUGE] * 3}, {"classes": ["a"] * 100_001}, {"std": []}):
        (finished / "inputs.json").write_text(json.dumps({**kept, **change}))
        with pytest.raises(sanp.SanpError, match="is damaged"):
            read_inputs(finished)
    assert Inputs(image_size=8, mean=(0.0,), std=(1.0,), classes=("a",)).num_classes == 1


def test_digits_larger_than_the_memory_are_refused_at_once() -> None:
    with within(5), pytest.raises(sanp.SanpError, match=r"size is 4096.*give at most 256"):
        read_digits(size=4096)


def test_a_picture_that_is_one_pixel_wide_and_very_long_is_refused(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("1", (1, 70_000)).save(tmp_path / "long.png")
    with pytest.raises(sanp.SanpError, match="1x70000 pixels, a side of more than 65536"):
        decode(tmp_path / "long.png", 32)


def test_a_file_of_a_million_tensors_is_refused_at_once(tmp_path: Path) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    written = json.dumps({f"t{number}": empty for number in range(1_000_000)}).encode()
    path = tmp_path / "net.safetensors"
    path.write_bytes(len(written).to_bytes(8, "little") + written)
    (tmp_path / "now.safetensors").write_bytes(path.read_bytes())
    for read in (lambda: sanp.load(path, tiny_run.Tiny()), lambda: Saved(tmp_path)):
        with within(5), pytest.raises(sanp.SanpError, match="too many tensors"):
            read()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("path", ["x" * 5000, "x" * 300, "x\0y", "/".join(["y" * 200] * 30)], ids=range(4))
def test_a_path_that_no_file_system_has_is_refused(path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: sanp.load(path, tiny_run.Tiny()),
        lambda: sanp.save(tiny_run.Tiny(), path),
        lambda: sanp.data.load(f"imagefolder:{path}"),
        lambda: sanp.data.get(f"imagefolder:{path}"),
        lambda: sanp.data.describe(Path(path)),
    ]
    for call in calls:
        with pytest.raises(sanp.SanpError, match="the path"):
            call()


def test_the_home_folder_of_nobody_is_refused() -> None:
    with pytest.raises(sanp.SanpError, match="not known here: give the whole path"):
        sanp.data.load("imagefolder:~nosuchuser/x")


def test_half_a_library_does_not_end_the_process(tmp_path: Path) -> None:
    found = list(Path(sanp.engine.__file__).parent.glob("_native*.so"))
    if not found:
        pytest.skip("no native library")
    whole = found[0].read_bytes()
    (tmp_path / "half.so").write_bytes(whole[: len(whole) // 2])
    program = (
        "from sanp.engine import library\ntry:\n library.native_library()\nexcept library.Unavailable as e:\n print(e)"
    )
    environment = {**os.environ, "SANP_NATIVE": str(tmp_path / "half.so")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "half.so cannot be loaded" in done.stdout


@pytest.mark.parametrize("steps", [-1e9, 1e30, float("nan")])
def test_a_state_whose_optimizer_has_done_an_impossible_number_of_steps_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: float
) -> None:
    tiny_run.install(monkeypatch)

    state = tiny_run.stopped_in_joint_stage(tmp_path / "run")
    with safe_open(state, framework="pt") as file:
        header = file.metadata()
    tensors = load_file(state)
    tensors["optimizer.1.0.step"] = torch.full_like(tensors["optimizer.1.0.step"], steps)
    save_file(tensors, state, header)
    with pytest.raises(sanp.SanpError, match=r"is damaged \(an optimizer has done"):
        resumed(tmp_path / "run")

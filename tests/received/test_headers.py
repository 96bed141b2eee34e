"""A network's file that was received: headers that ask for much, lie, or hold what no network has."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import sanp
from sanp.checkpoint import NETWORK_KEY
from sanp.experiments.state import Saved
from sanp.experiments.weights_file import take_weights
from sanp.report.predict import Predictor
from tests.core.test_files import within
from tests.tools import tiny_run

HUGE = 10**400


def with_gates(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Writes a gated network to ``path`` whose header's gates were changed."""
    with_header(path, lambda header: change(header["gates"]))


def with_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Writes a gated network to ``path`` whose header was changed."""
    gated = sanp.gate(tiny_run.Tiny(), torch.zeros(1, 3, 8, 8))
    gated.set_budget("60%", torch.randn(8, 3, 8, 8))
    sanp.save(gated, path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    own = json.loads(header["__metadata__"][NETWORK_KEY])
    change(own)
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


def test_a_file_of_a_million_tensors_is_refused_at_once(tmp_path: Path) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    written = json.dumps({f"t{number}": empty for number in range(1_000_000)}).encode()
    path = tmp_path / "net.safetensors"
    path.write_bytes(len(written).to_bytes(8, "little") + written)
    (tmp_path / "now.safetensors").write_bytes(path.read_bytes())
    for read in (lambda: sanp.load(path, tiny_run.Tiny()), lambda: Saved(tmp_path)):
        with within(5), pytest.raises(sanp.SanpError, match="too many tensors"):
            read()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("top", [HUGE, -HUGE, 1e300, float("nan"), float("inf"), -1, True, "1", [1]])
def test_a_range_of_int8_that_no_calibration_gives_is_refused(tmp_path: Path, top: object) -> None:
    with_header(tmp_path / "net", lambda header: header.update(int8={"ranges": {"a": [0.0, top]}}))
    with pytest.raises(sanp.SanpError, match="int8's number for a is"):
        sanp.load(tmp_path / "net", tiny_run.Tiny())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.bool])
def test_weights_of_a_kind_that_is_no_float_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    sanp.save(tiny_run.Tiny(), tmp_path / "net")
    with safe_open(tmp_path / "net", framework="pt") as file:
        header = file.metadata()
    tensors = load_file(tmp_path / "net")
    tensors["classifier.weight"] = tensors["classifier.weight"].to(dtype)
    save_file(tensors, tmp_path / "net", header)
    with pytest.raises(sanp.SanpError, match=f"'classifier.weight' is {dtype}, and Tiny wants torch.float32"):
        sanp.load(tmp_path / "net", tiny_run.Tiny())
    taken = take_weights(tiny_run.Tiny(), tmp_path / "net")
    assert taken.other_shape == ("classifier.weight",)


def test_a_network_of_nan_predicts_nothing(finished: Path, tmp_path: Path) -> None:
    model = finished / "model.safetensors"
    with safe_open(model, framework="pt") as file:
        header = file.metadata()
    tensors = {name: tensor.clone() for name, tensor in load_file(model).items()}
    tensors["classifier.bias"].fill_(float("nan"))
    save_file(tensors, model, header)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(sanp.SanpError, match="output is not finite"):
        Predictor(finished).predict(tmp_path / "a.png")

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sanp import checkpoint
from sanp.cli import app as cli
from sanp.core.errors import SanpError
from sanp.experiments.inputs import INPUTS_FILE, read_inputs
from sanp.report.predict import Predictor
from sanp.report.study_file import study_of
from tests.tools import tiny_run


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """Three test images as files."""
    paths = []
    for index in range(3):
        paths.append(tmp_path / f"{index}.png")
        Image.fromarray(tiny_run.squares().test.images[index].numpy().transpose(1, 2, 0)).save(paths[-1])
    return paths


def test_a_file_gets_the_answer_and_the_cost_that_the_test_image_got(folder: Path, images: list[Path]) -> None:
    found, predictor = study_of(folder), Predictor(folder)
    report = json.loads((folder / "report.json").read_text())
    for index, image in enumerate(images):
        prediction = predictor.predict(image)
        assert prediction.label == found.classes[found.answers[index]]
        assert prediction.flops == report["per_sample"][index]
        assert prediction.kept == report["per_sample"][index] / report["dense_flops"]
        assert prediction.confidence == pytest.approx(found.confidence[index], abs=1e-5)
        assert prediction.seconds > 0


def test_the_engine_answers_and_the_network_does_not_run(
    folder: Path, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = Predictor(folder)
    expected = predictor.look._slow(predictor.inputs.normalise(predictor.pixels(images[0])[None].copy()))
    assert predictor.look.engine.plan.native

    def runs(*args: object, **kwargs: object) -> None:
        raise AssertionError("torch computes it")

    monkeypatch.setattr(predictor.look._slow.network, "forward", runs)
    prediction = predictor.predict(images[0])
    assert prediction.flops == float(expected.flops[0])
    assert prediction.confidence == pytest.approx(float(expected.probabilities.max()), abs=1e-5)


def test_json_for_scripts(
    folder: Path, images: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sanp", "predict", str(folder), *map(str, images), "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    printed = json.loads(capsys.readouterr().out)
    assert [each["image"] for each in printed] == list(map(str, images))
    assert set(printed[0]) == {"image", "label", "confidence", "flops", "kept", "seconds"}


def test_predicting_needs_the_data_once_only(folder: Path, images: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first = Predictor(folder).predict(images[0])
    monkeypatch.setattr("sanp.experiments.run_folder.load_data", None)
    assert Predictor(folder).predict(images[0]).label == first.label


def test_normalising_a_file_is_what_training_did(folder: Path) -> None:
    inputs, pixels = read_inputs(folder), np.full((1, 3, 8, 8), 51, dtype=np.uint8)
    # The squares have mean 0.4 and deviation 0.1: (51 / 255 - 0.4) / 0.1 = -2.
    assert inputs.normalise(pixels).numpy() == pytest.approx(-2.0, abs=1e-5)


@pytest.mark.parametrize("content", ["", "[]", '{"image_size": 8}', '{"image_size": 1e9, "mean": [], "std": []}'])
def test_damaged_inputs_are_told(folder: Path, content: str) -> None:
    (folder / INPUTS_FILE).write_text(content)
    with pytest.raises(SanpError, match="damaged"):
        read_inputs(folder)


def test_a_file_that_is_no_image_is_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "note.png").write_text("not an image")
    predictor = Predictor(folder)
    with pytest.raises(SanpError, match="cannot be read as an image"):
        predictor.predict(tmp_path / "note.png")
    with pytest.raises(SanpError, match="is not a file"):
        predictor.predict(tmp_path / "nowhere.png")


def test_int8_is_calibrated_on_training_images_once_and_kept_in_the_file(
    folder: Path, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = checkpoint.read_network_file(folder / "model.safetensors")[1]
    fp32, first = Predictor(folder), Predictor(folder, precision="int8")
    assert first.look.engine.plan.precision == "int8"
    assert any(row.how.startswith("int8") for row in first.look.engine.plan)
    for image in images:
        one, other = fp32.predict(image), first.predict(image)
        assert one.label == other.label
        assert one.confidence == pytest.approx(other.confidence, abs=0.05)
    monkeypatch.setattr("sanp.experiments.calibrated.load_data", None)
    again = Predictor(folder, precision="int8")
    assert again.predict(images[0]).confidence == first.predict(images[0]).confidence
    header, after = checkpoint.read_network_file(folder / "model.safetensors")
    assert header.int8 is not None
    assert all(tensors[name].equal(after[name]) for name in tensors)


def test_an_unknown_precision_is_told(folder: Path) -> None:
    with pytest.raises(SanpError, match="unknown precision 'int4'"):
        Predictor(folder, precision="int4")

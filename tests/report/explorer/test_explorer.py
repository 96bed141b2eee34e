import io
import json
from pathlib import Path

import pytest
from PIL import Image

from sanp.core.errors import SanpError
from sanp.report.explorer.explorer import Explorer


def test_a_smaller_budget_costs_less_and_the_trained_one_is_among_them(explorer: Explorer) -> None:
    shares = [setting.kept for setting in explorer.settings]
    assert len(shares) > 3 and shares == sorted(shares)
    assert explorer.settings[explorer.trained].shift == 0
    pixels = explorer.image(0)
    costs = [answered.kept for answered in explorer.answers(pixels)]
    assert costs[0] < costs[explorer.trained] < costs[-1]


def test_the_trained_setting_answers_as_the_evaluation_did(explorer: Explorer) -> None:
    report = json.loads((explorer.folder / "report.json").read_text())
    explorer.answer(explorer.image(0), 0)
    for position in range(5):
        answered, seen = explorer.answer(explorer.image(position), explorer.trained)
        assert float(seen.flops[0]) == report["per_sample"][position]
        assert answered.probabilities.sum() == pytest.approx(1, abs=1e-5)


def test_a_dropped_file_becomes_pixels_of_the_right_size(explorer: Explorer) -> None:
    with io.BytesIO() as file:
        Image.new("RGB", (40, 20), (10, 20, 30)).save(file, "PNG")
        pixels = explorer.decode(file.getvalue())
    assert pixels.shape == (3, 8, 8) and pixels[:, 0, 0].tolist() == [10, 20, 30]
    with pytest.raises(SanpError, match="this file cannot be read as an image"):
        explorer.decode(b"nothing")
    with pytest.raises(SanpError, match="does not exist"):
        explorer.image(128)


def test_an_ungated_network_has_one_setting(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "dense.safetensors").read_bytes())
    explorer = Explorer(folder)
    assert [setting.kept for setting in explorer.settings] == [1.0]

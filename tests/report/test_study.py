import json
from pathlib import Path

import numpy as np
import pytest

from sanp.report.study import SHOWN
from sanp.report.study_file import study_of
from tests.tools import tiny_run


def test_a_study_says_what_the_evaluation_said(folder: Path) -> None:
    found, report = study_of(folder), json.loads((folder / "report.json").read_text())
    assert found.flops.tolist() == report["per_sample"]
    assert found.right.mean() == report["accuracy"]
    counts = np.bincount(found.labels, minlength=4)
    for layer in report["layers"]:
        kept = (found.open[layer["name"]] * counts[:, None]).sum() / counts.sum() / layer["channels"]
        assert kept == pytest.approx(layer["kept"], abs=1e-6)


def test_the_cheapest_and_the_dearest_images_are_kept(folder: Path) -> None:
    found = study_of(folder)
    cheap, dear = found.flops[found.shown[:SHOWN]], found.flops[found.shown[SHOWN:]]
    assert cheap.tolist() == sorted(found.flops)[:SHOWN]
    assert dear.tolist() == sorted(found.flops)[::-1][:SHOWN]
    images = tiny_run.squares().test.images
    assert np.array_equal(found.pictures, images[found.shown].numpy())

"""The examples run as they are, and reach their budget on images that they have not seen."""

import importlib.util
import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name, settings, budget",
    [
        ("detection", {}, 0.6),
        pytest.param("segmentation", {"steps": 25, "batch": 4}, 0.5, marks=needs("pytorchcv")),
        pytest.param("lightning_budget", {}, 0.5, marks=needs("lightning")),
        pytest.param("transformers_trainer", {}, 0.6, marks=needs("transformers", "accelerate")),
    ],
)
def test_an_example_reaches_its_budget(name: str, settings: dict[str, Any], budget: float) -> None:
    result = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](**settings)
    assert abs(result["kept"] - budget) < 0.03
    if "before" in result:
        assert result["loss"] < result["before"] / 4
    else:
        assert result["accuracy"] > 0.9  # nothing but background would be 0.75 of the pixels, chance 0.25 of the images

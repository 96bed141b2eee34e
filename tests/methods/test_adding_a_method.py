import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from torch import nn

import sanp
from sanp.methods import METHODS, method_named, random_channels
from sanp.methods.cutting.cut import CutNetwork
from sanp.training.watching import run_stages
from tests.methods.conftest import task
from tests.methods.test_every_method import squares

GUIDE = Path(__file__).parents[2] / "docs" / "adding-a-method.md"


def test_the_example_in_the_guide_is_a_method(trained: dict[str, nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    source = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    line = re.search(r'`"(\w+)": (\w+)\(\),`', text)
    assert source is not None and line is not None
    assert source[1] == Path(random_channels.__file__).read_text(encoding="utf-8")
    module = ModuleType("random_channels")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    exec(compile(source[1], str(GUIDE), "exec"), module.__dict__)
    monkeypatch.setitem(METHODS, line[1], getattr(module, line[2])())
    pruned = run_stages(method_named("random").stages(trained["residual"], task()))
    report = sanp.evaluate(pruned, squares())
    assert isinstance(pruned, CutNetwork) and pruned.method == "random"
    assert report.kept == pytest.approx(0.5, abs=1 / 16)
    assert report.accuracy > 0.5

"""The order of the rooms: a module imports only from its own room or from those above it in this list."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sanp"
ROOMS = [
    "errors checked rows distributed winograd",
    "saliency binarize flops budget",
    "backbones data",
    "record spm gated_conv",
    "traced trace copy_network batch liveness operators step moves rules propagate channelwise coupling follow "
    "topology sites cost accounting dial network describe inspect_network unchanged gate objective",
    "memory precision schedule config nonfinite shared_batch data_parallel stages freeze finish fit",
    "methods cut",
    "evaluate checkpoint",
    "nonzero testing lightning pretrained",
    "engine export",
    "options recipe lock resume progress_log run results table side_by_side timed_runs compare stopwatch paper_tables "
    "channel_use figure_lines report reproduce display commands cli",
]
FLOOR = {name: level for level, room in enumerate(ROOMS) for name in room.split()}
MODULES = sorted(
    path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem not in ("__init__", "__main__")
)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms that a file imports when it is loaded; imports for type checks or inside a function do not count."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sanp":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("sanp.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_rooms_above(path: Path) -> None:
    own = room_of(path)
    assert own in FLOOR, f"{own} is in no room: add it to ROOMS"
    for other in imported(path):
        assert FLOOR[other] <= FLOOR[own], f"{own} imports {other}, which is below it"


def test_importing_sanp_stays_light() -> None:
    import subprocess
    import sys

    program = "import sys, sanp; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"sklearn", "onnx", "onnxruntime", "plotly", "matplotlib", "tensorboard", "pandas", "typer", "rich", "PIL"}
    heavy |= {"dash", "flask", "jinja2", "transformers"}
    assert heavy & set(loaded) == set()

"""The order of the rooms: a module imports only from its own room or from those before it in this list."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sanp
from sanp.core.later import LATER, later
from sanp.methods import METHODS

SOURCE = Path(__file__).parents[1] / "src" / "sanp"
ROOMS = (
    "core backbones data spm tracing gating training evaluation methods checkpoint engine experiments report cli "
    "testing lightning"
).split()
OUTSIDE = {"__init__.py", "__main__.py", "py.typed"}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name not in OUTSIDE)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, also inside a function or for type checks."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sanp":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("sanp.")}
    return found


def defined(module: ast.Module) -> set[str]:
    """The names that a module defines at its top level; imported ones are not among them."""
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return names


def test_every_entry_of_the_package_is_a_room_and_there_are_at_most_twenty() -> None:
    entries = {path.name for path in SOURCE.iterdir() if path.name != "__pycache__"}
    assert {entry.removesuffix(".py") for entry in entries - OUTSIDE} == set(ROOMS)
    assert len(entries) <= 20


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_rooms_before_its_own(path: Path) -> None:
    own = room_of(path)
    for other in imported(path):
        assert ROOMS.index(other) <= ROOMS.index(own), f"{own} imports {other}, which comes after it"


def test_what_is_loaded_later_exists_and_only_gating_uses_it() -> None:
    for what, (module, name) in LATER.items():
        assert later(what) is getattr(importlib.import_module(module), name)
    users = {room_of(path) for path in MODULES if "core.later import" in path.read_text(encoding="utf-8")}
    assert users == {"gating"}


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=lambda path: path.name)
def test_a_folder_says_what_lives_in_it(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize("room", [room for room in ROOMS if (SOURCE / room).is_dir()])
def test_the_sentence_of_a_room_names_what_it_imports(room: str) -> None:
    said = ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    match = re.search(r"imports ([a-z, ]+)\.", said)
    assert match is not None, "say which rooms it imports"
    above = set(ROOMS[: ROOMS.index(room)])
    named = above if match[1] == "all rooms above it" else set(re.findall(r"[a-z]+", match[1])) - {"and", "none"}
    assert named <= above
    assert set().union(*(imported(path) for path in (SOURCE / room).rglob("*.py"))) - {room} <= named


def test_no_module_has_the_name_of_a_public_function() -> None:
    functions = {name for name in sanp.__all__ if callable(getattr(sanp, name)) and name.islower()}
    assert {"gate", "fit", "compile", "export"} <= functions
    assert functions & {path.stem for path in MODULES} == set()


def test_a_public_name_is_defined_in_one_module_so_that_it_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for name in defined(ast.parse(path.read_text(encoding="utf-8"))):
            if not name.startswith("_"):
                homes.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    shared = {name: files for name, files in homes.items() if len(files) > 1}
    assert shared == {
        "load": ["checkpoint/networks.py", "data/catalog.py"]
    }  # sanp.load and sanp.data.load, both public


def test_the_folder_of_methods_holds_exactly_the_methods_a_file_each() -> None:
    files = sorted(path.stem for path in (SOURCE / "methods").glob("*.py") if path.name != "__init__.py")
    assert sorted(type(method).__module__ for method in METHODS.values()) == [f"sanp.methods.{name}" for name in files]


def test_importing_sanp_stays_light() -> None:
    program = "import sys, sanp; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"sklearn", "onnx", "onnxruntime", "plotly", "matplotlib", "tensorboard", "pandas", "typer", "rich", "PIL"}
    heavy |= {"dash", "flask", "jinja2", "transformers"}
    assert heavy & set(loaded) == set()

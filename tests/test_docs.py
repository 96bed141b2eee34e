"""The documents: every page can be reached, and every link, path, module and word that they name is there."""

import ast
import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import sanp
import sanp.testing
from sanp.cli.recipe_options import all_settings
from sanp.core.errors import SanpError
from sanp.experiments.recipe import make_recipe
from sanp.methods import METHODS
from tests.test_rooms import ROOMS

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
PRESENT = [path for path in DOCUMENTS if path.name != "log.md"]
"""the log tells of files that are gone"""
GLOSSARY = ROOT / "docs" / "glossary.md"
SOURCE = ROOT / "src" / "sanp"
STARTS = (ROOT, ROOT / "src", SOURCE, SOURCE / "engine" / "native")
"""what a path in a document may start from"""

PLACE = re.compile(r"(?<![\w/.<-])(?:src|tests|docs|recipes|results|scripts|benchmarks|examples)/[\w./-]*\w")
FILE = re.compile(r"(?<![\w/.-])[\w/-]+\.(?:py|hpp|cpp)\b")
FOLDER = re.compile(r"`([\w/-]+/)`")
FOLDERS = [f"/{folder.relative_to(ROOT)}/" for start in ("src", "tests") for folder in (ROOT / start).rglob("*/")]
MODULE = re.compile(r"(?<![\w/.-])(?:sanp|tests)(?:\.[A-Za-z_]\w*)+")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def links(path: Path) -> list[str]:
    """The links of a page that do not lead out of the repository, outside of code."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text_of(path), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def headings(path: Path) -> set[str]:
    """The anchors that a page's headings get."""
    prose = re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL)
    found = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop()
        seen.add(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
        left += [target for target in targets - seen if target.suffix == ".md" and target.exists()]
    assert [name_of(page) for page in PAGES if page not in seen] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    for link in links(document):
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


@pytest.mark.parametrize("document", PRESENT, ids=name_of)
def test_every_path_that_a_document_names_is_there(document: Path) -> None:
    text = text_of(document)
    missing = [place for place in PLACE.findall(text) if not (ROOT / place).exists()]
    missing += [file for file in FILE.findall(text) if not any((start / file).is_file() for start in STARTS)]
    outside = [folder for folder in FOLDER.findall(text) if not (ROOT / folder).is_dir()]
    missing += [folder for folder in outside if not any(known.endswith(f"/{folder}") for known in FOLDERS)]
    assert missing == []


@pytest.mark.parametrize("figure", sorted((ROOT / "docs" / "figures").glob("*.svg")), ids=name_of)
def test_every_file_that_a_figure_names_is_there(figure: Path) -> None:
    assert [file for file in FILE.findall(text_of(figure)) if not (SOURCE / file).is_file()] == []


@pytest.mark.parametrize("document", PRESENT, ids=name_of)
def test_every_module_that_a_document_names_is_there(document: Path) -> None:
    missing: list[str] = []
    for name in MODULE.findall(text_of(document)):
        try:
            resolve_name(name)
        except SanpError:  # it is there, but wants a package that is not installed
            continue
        except (ImportError, AttributeError):
            missing.append(name)
    assert missing == []


def public_functions() -> dict[str, Callable[..., Any]]:
    """The functions that users call, and the methods of the classes that they get, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for package in (sanp, sanp.data, sanp.engine, sanp.testing):
        for name in package.__all__:
            given = getattr(package, name)
            own = vars(given).items() if inspect.isclass(given) else [("", given)]
            functions = {part: each for part, each in own if inspect.isfunction(each) and not part.startswith("_")}
            found |= {f"{package.__name__}.{name}.{part}".rstrip("."): each for part, each in functions.items()}
    return found


@pytest.mark.parametrize(("name", "function"), public_functions().items())
def test_every_argument_of_a_public_function_is_explained(name: str, function: Callable[..., Any]) -> None:
    said = inspect.getdoc(function) or ""
    if "the arguments are those of" in said:
        return
    arguments = inspect.signature(function).parameters.keys() - {"self", "args", "kwargs"}
    assert [each for each in arguments if not re.search(rf"\b{each}\b", said)] == []


def glossary() -> list[tuple[str, str, list[str]]]:
    """Of every row that names a place in the code: the word, the file, and the names that it is said to have."""
    rows = re.findall(r"^\| (.+?) \| .+ \| `([\w/]+\.\w+)`(.*) \|$", text_of(GLOSSARY), re.MULTILINE)
    return [(word, file, re.findall(r"`(\w+)`", names)) for word, file, names in rows]


def test_every_row_of_the_glossary_names_a_place_in_the_code() -> None:
    rows = [line for line in text_of(GLOSSARY).splitlines() if line.startswith("| ")]
    heads = [line for line in rows if line.startswith("| word |")]
    assert len(glossary()) == len(rows) - len(heads) > 80


def test_every_word_of_the_glossary_is_there_once() -> None:
    words = [each for word, _, _ in glossary() for each in word.split(", ")]
    assert sorted(words) == sorted(set(words))


def made_in(source: str) -> set[str]:
    """The names that Python code makes: functions, classes, variables, attributes and arguments, but no imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return found


@pytest.mark.parametrize("word, file, names", glossary(), ids=[word for word, _, _ in glossary()])
def test_a_word_s_file_has_the_names_that_the_glossary_gives(word: str, file: str, names: list[str]) -> None:
    source = text_of(SOURCE / file)
    made = made_in(source) if file.endswith(".py") else set(re.findall(r"\w+", source))
    assert names, "a row has a file and at least one name in it"
    assert [name for name in names if name not in made] == []


def test_the_readme_lists_the_rooms_in_their_order() -> None:
    tree = text_of(ROOT / "README.md").partition("src/sanp/\n")[2].partition("\nrecipes/")[0]
    assert re.findall(r"^  (\w+)(?:/|\.py)  ", tree, re.MULTILINE) == ROOMS


def test_the_architecture_lists_the_rooms_in_their_order() -> None:
    section = text_of(ROOT / "docs" / "architecture.md").partition("## Rooms")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", section, re.MULTILINE)
    assert named == ROOMS


def test_a_method_with_settings_needs_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the guide, as a file: recipes and the command line know its settings by its line in METHODS."""
    block = re.search(r"```python\n(.*?)```", text_of(ROOT / "docs" / "adding-a-method.md"), re.DOTALL)
    assert block is not None
    (tmp_path / "guide_example.py").write_text(block[1], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "guide_example", raising=False)
    monkeypatch.delitem(METHODS, "random")
    assert "--random.seed" not in [setting.option for setting in all_settings()]
    monkeypatch.setitem(METHODS, "random", import_module("guide_example").RandomChannels())
    recipe = make_recipe({"method": "random", "random": {"seed": 3}})
    assert recipe.pruning_method().config.seed == 3  # type: ignore[attr-defined]
    assert "[random]\nseed = 3\n" in recipe.as_toml()
    assert "--random.seed" in [setting.option for setting in all_settings()]

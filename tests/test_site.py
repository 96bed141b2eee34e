"""The documentation that teaches: its code runs, its commands exist, the site has its pages, its numbers are real."""

import json
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

import sanp
from sanp.cli.app import make_app
from sanp.cli.commands import COMMANDS
from sanp.experiments.documents import filled
from sanp.experiments.results import read_results

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))
TRADEOFF = runpy.run_path(str(ROOT / "benchmarks" / "tradeoff.py"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_tutorial_runs_and_ends_with_a_fast_network_of_35_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec("\n".join(blocks(DOCS / "tutorial.md", "python")), names)
    assert names["dense"].accuracy > 0.95
    assert names["report"].accuracy > 0.93
    assert names["report"].kept == pytest.approx(0.35, abs=0.03)
    right = names["fast"](names["x"]).argmax(1)
    assert right.tolist() == names["gated"].eval()(names["x"]).argmax(1).tolist()


def test_the_quick_start_runs_and_meets_its_budget() -> None:
    _, names = NOTEBOOKS["run"](DOCS / "notebooks" / "quick-start.ipynb")
    assert names["dense"].accuracy > 0.93 and names["report"].accuracy > 0.9
    assert names["report"].kept == pytest.approx(0.35, abs=0.03)


@pytest.mark.filterwarnings("ignore")  # what transformers warns of is its own matter
def test_a_stranger_s_network_becomes_a_faster_file() -> None:
    pytest.importorskip("transformers")
    _, names = NOTEBOOKS["run"](DOCS / "notebooks" / "strangers-network.ipynb")
    assert names["report"].kept == pytest.approx(0.4, abs=0.03)
    assert names["report"].accuracy > 0.85
    assert names["fast"].plan.native_share > 0.99


def test_a_notebook_shows_what_it_printed() -> None:
    for path in (DOCS / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        printing = [cell for cell in cells if "print(" in "".join(cell["source"]) and cell["cell_type"] == "code"]
        assert printing and all(cell["outputs"] for cell in printing), path.name


@cache
def options_of(name: str) -> dict[str, set[str]]:
    """The options of a command, by its name; of a group, those of each command in it."""
    command: Any = typer.main.get_command(make_app([name])).commands[name]  # type: ignore[attr-defined]
    inner = getattr(command, "commands", None)
    each = {name: command} if inner is None else {f"{name} {below}": under for below, under in inner.items()}
    return {full: {option for param in under.params for option in param.opts} for full, under in each.items()}


def quoted() -> list[tuple[str, str]]:
    """Every command line of the documents, with the page that has it."""
    pages = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
    lines = [(page.name, line) for page in pages for block in blocks(page, "") for line in block.splitlines()]
    found = [(page, re.search(r"^(?:torchrun .* -m )?sanp (.*?)(?:\s+#.*)?$", line)) for page, line in lines]
    return [(page, match[1]) for page, match in found if match]


def test_there_are_command_lines_to_check() -> None:
    assert len(quoted()) > 20


@pytest.mark.parametrize("page, line", quoted(), ids=[f"{page}: {line[:40]}" for page, line in quoted()])
def test_a_command_of_the_documents_exists_with_its_options(page: str, line: str) -> None:
    words = line.split()
    assert words[0] in COMMANDS, line
    known = options_of(words[0])
    name = next((full for full in known if line.startswith(full)), None)
    assert name is not None, line
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known[name] | {"--help"}, line


def test_every_public_name_is_in_the_api_page() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    described = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    names = {path.rpartition(".")[2] for path in described} | set(re.findall(r"`sanp\.(\w+)", page))
    assert set(sanp.__all__) <= names


def in_navigation(part: Any) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [page for each in (part.values() if isinstance(part, dict) else part) for page in in_navigation(each)]


def test_the_site_has_every_page_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = sorted(str(page.relative_to(DOCS)) for ending in ("md", "ipynb") for page in DOCS.rglob(f"*.{ending}"))
    assert sorted(in_navigation(site["nav"])) == pages


@pytest.mark.parametrize("document", TRADEOFF["QUOTED"], ids=lambda path: path.name)
def test_error_against_time_is_what_the_results_say(document: Path) -> None:
    lines = list(read_results(TRADEOFF["RESULTS"]))
    text = document.read_text(encoding="utf-8")
    assert filled(text, "headline", TRADEOFF["headline"](lines)) == text
    if document.name == "README.md":
        assert filled(text, "tradeoff", TRADEOFF["tradeoff_table"](lines)) == text


def test_a_point_is_the_newest_time_and_error_of_a_contender() -> None:
    lines = [
        {"measured": "ms", "values": {"dense, fp32: OpenVINO": 9.0, "dense, int8: OpenVINO": 1.0}},
        {"measured": "error", "values": {"dense, fp32: OpenVINO": 0.1, "dense, int8: OpenVINO": 0.2}},
        {"measured": "error", "values": {"pruned, fp32: sanp, 20% kept": 0.3}},
        {"measured": "ms", "values": {"dense, fp32: OpenVINO": 4.0}},
    ]
    assert TRADEOFF["points"](lines) == {"dense, fp32: OpenVINO": (4.0, 0.1), "dense, int8: OpenVINO": (1.0, 0.2)}
    assert TRADEOFF["tradeoff_table"](lines).splitlines()[2:] == [
        "| dense, fp32: OpenVINO | 10.00 | 4.00 | 1.0 |",
        "| dense, int8: OpenVINO | 20.00 | 1.00 | 4.0 |",
    ]

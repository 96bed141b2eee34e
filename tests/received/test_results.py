"""Results files, pages and tables: lines that no run made, and names that are code elsewhere."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import sanp
from sanp.experiments import results
from sanp.experiments.documents import fill, table_line
from sanp.experiments.paper.deciding import deciding_flops
from sanp.experiments.paper.tables import readme_table, results_page
from sanp.experiments.recipe import Recipe
from sanp.experiments.table import Row, to_csv, to_latex, to_markdown
from tests.core.test_files import within

LINE: dict[str, Any] = {
    "name": "table1/tiny-ns", "method": "ns", "backbone": "tiny", "data": "cifar10", "seed": 0, "epochs": [1, 0, 1],
    "images": None, "error": 0.1, "flops": 5e6, "paper_flops": 5e6, "dense_flops": 1e7, "kept": 0.5, "pruned": 0.5,
    "config": {}, "overhead_flops": 0, "trials": 4,
}  # fmt: skip
BAD: dict[str, Any] = {
    "name": [1, None, "x" * 2000], "method": ["x", ["ns"], None], "backbone": [3], "data": [None], "seed": [[1], -1],
    "epochs": [None, [1], [1, 2, "x"], [10**400, 1, 1]], "images": ["x", -1], "flops": ["1", None, True],
    "error": ["x", float("nan"), 10**400, float("inf")], "dense_flops": [0, -1, "x"], "pruned": [None],
    "config": [None, []], "overhead_flops": ["x"], "trials": ["x", None],
}  # fmt: skip
WRONG = [(name, value) for name, values in BAD.items() for value in values]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=range(len(WRONG)))
def test_a_results_line_that_no_run_made_is_one_error(tmp_path: Path, name: str, value: object) -> None:
    (tmp_path / "table1.jsonl").write_text(json.dumps(LINE) + "\n" + json.dumps({**LINE, name: value}) + "\n")
    for page in (results_page, readme_table):
        with pytest.raises(sanp.SanpError, match=r"table1.jsonl, line 2 is not of a run"):
            page(tmp_path)


@pytest.mark.parametrize("name", LINE)
def test_a_results_line_without_a_field_is_read_or_one_error(tmp_path: Path, name: str) -> None:
    lacking = {key: value for key, value in LINE.items() if key != name}
    (tmp_path / "table1.jsonl").write_text(json.dumps(lacking) + "\n")
    try:
        results_page(tmp_path)
    except sanp.SanpError as error:
        assert f"it lacks '{name}'" in str(error)


@pytest.mark.parametrize("text", ["{", "[]\n", "1\n", "null\n", "[" * 100_000, '{"a":' + "9" * 5000 + "}", "\0\n"])
def test_a_results_file_that_is_no_list_of_objects_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "table1.jsonl").write_text(text)
    with pytest.raises(sanp.SanpError, match=r"table1.jsonl, line 1 is"):
        results_page(tmp_path)


def test_a_results_file_or_page_that_is_a_pipe_or_a_device_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "table1.jsonl")
    os.mkfifo(tmp_path / "page.md")
    (tmp_path / "dense.jsonl").symlink_to("/dev/zero")
    with within(5):
        for path in (tmp_path / "table1.jsonl", tmp_path / "dense.jsonl"):
            with pytest.raises(sanp.SanpError, match="cannot be read"):
                list(results.read_results(path))
        with pytest.raises(sanp.SanpError, match="cannot read the page"):
            fill(tmp_path / "page.md", "tables", "")


def test_results_are_not_added_to_what_a_link_points_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "table1.jsonl").symlink_to(tmp_path / "precious")
    with pytest.raises(sanp.SanpError, match="cannot write"):
        results.append(tmp_path / "table1.jsonl", {})
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_results_line_cannot_ask_for_a_large_forward() -> None:
    line = {"config": Recipe(backbone="vgg19", image_size=4096).as_dict()}
    with within(20), pytest.raises(sanp.SanpError, match="a results line asks for an example"):
        deciding_flops(line)


NAME = "\\input{a}$x^2~_%&#:|=<img src=x>\n\u202e"
ROW = Row(
    data="digits", backbone=NAME, method="sanp", layer_adaptive=True, sample_adaptive=True, error=0.1, flops=5e6,
    dense_flops=1e7, seconds=None,
)  # fmt: skip


def test_a_name_in_a_markdown_table_is_a_cell() -> None:
    line = to_markdown([ROW]).splitlines()[2]
    assert line.startswith(r"| \\input{a}$x^2~_%&#:\|=&lt;img src=x>\\n\\u202e | SANP | ✓ | ✓ | 10.00 |")
    assert table_line(["a|b"]) == r"| a\|b |"


def test_a_name_in_a_latex_table_is_text() -> None:
    line = to_latex([ROW]).splitlines()[4]
    assert line.startswith(
        r"\textbackslash{}input\{a\}\$x\textasciicircum{}2\textasciitilde{}\_\%\&\#:|=<img src=x>"
        r"\textbackslash{}n\textbackslash{}u202e & SANP & \checkmark & \checkmark & 10.00"
    )


@pytest.mark.parametrize("start", ["=", "+", "@", "-"])
def test_a_name_in_a_table_of_values_is_no_formula(start: str) -> None:
    from dataclasses import replace

    assert to_csv([replace(ROW, backbone=f"{start}cmd()")]).splitlines()[1].startswith(f"'{start}cmd(),SANP,yes,yes,")

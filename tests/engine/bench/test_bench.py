"""sanp bench: rows, ratios, what is left out, and the tables that quote results."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import sanp
from sanp.core.errors import SanpError
from sanp.engine.bench import runtimes
from sanp.engine.bench.bench import BenchConfig, bench
from sanp.engine.bench.images import random_images
from sanp.engine.bench.tables import (
    engine_table,
    threads_table,
    time_against_flops,
    trained_table,
    without_open_gates,
    write_figure,
    zoo_table,
)
from sanp.engine.bench.turns import durations
from sanp.experiments.documents import filled
from sanp.experiments.results import read_results
from tests.conftest import SmallNet
from tests.tools import tiny_run

ROOT = Path(__file__).parents[3]
QUICK = BenchConfig(seconds=0.01, pruned=(0.4, 0.6), runtimes=("torch eager",))


def test_rows_are_the_dense_runtimes_and_the_engine_at_each_cost() -> None:
    images = random_images((3, 16, 16), 32)
    net = SmallNet(width=16).eval()
    found = bench("small", net, sanp.gate(net, images[:1]).eval(), images, QUICK)
    rows = {row.what: row for row in found.rows}
    assert list(rows) == ["torch eager", "engine, dense", "engine, 40% pruned", "engine, 60% pruned"]
    assert rows["torch eager"].of_best_dense == 1
    assert rows["engine, dense"].of_own_dense == 1
    assert [rows[f"engine, {share}% pruned"].kept for share in (40, 60)] == pytest.approx([0.6, 0.4], abs=0.05)
    for row in found.rows:
        assert row.of_best_dense == pytest.approx(row.ms / rows["torch eager"].ms)
        assert row.of_own_dense == pytest.approx(row.ms / rows["engine, dense"].ms)


def test_a_network_without_gates_is_timed_as_it_is() -> None:
    net, half = SmallNet(width=16).eval(), SmallNet(width=8).eval()
    found = bench("cut", net, half, random_images((3, 16, 16), 4), QUICK)
    assert found.rows[-1].what == "engine, as it is"
    # 3 to 16 to 16 channels against 3 to 8 to 8: the share is between a quarter and a half.
    assert 0.25 < found.rows[-1].kept < 0.5


def test_calls_are_timed_in_turn() -> None:
    clock = iter(range(10_000))
    order: list[str] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b") or next(clock)}
    # b's own call takes a tick of the clock
    assert durations(calls, 0, lambda: next(clock)) == {"a": [1] * 6, "b": [2] * 6}
    assert "".join(order) == "ab" + 2 * (4 * "a" + 4 * "b")


def test_what_is_not_installed_is_left_out_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> runtimes.Call:
        raise ModuleNotFoundError("No module named 'openvino'", name="openvino")

    def fails(*_: object) -> runtimes.Call:
        raise RuntimeError("no kernel\nand a long story")

    def without(*_: object) -> runtimes.Call:
        raise runtimes.Missing("this processor has no bf16 arithmetic")

    for name, function in (("OpenVINO", absent), ("torch.compile", fails), ("OpenVINO bf16", without)):
        monkeypatch.setitem(runtimes.RUNTIMES, name, function)
    x = torch.zeros(1, 3, 8, 8)
    wanted = ("torch eager", "torch.compile", "OpenVINO", "OpenVINO bf16")
    calls, reasons = runtimes.dense_calls(SmallNet().eval(), x, x, threads=1, wanted=wanted)
    assert list(calls) == ["torch eager"]
    assert reasons == {
        "torch.compile": "RuntimeError: no kernel",
        "OpenVINO": 'openvino is not installed: pip install "sanp[bench]"',
        "OpenVINO bf16": "this processor has no bf16 arithmetic",
    }


@pytest.mark.parametrize("settings", [{"batch": 0}, {"threads": 0}, {"seconds": 0.0}, {"pruned": (1.0,)}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SanpError):
        BenchConfig(**settings)  # type: ignore[arg-type]


def small() -> nn.Module:
    return SmallNet(width=16)


def test_the_command_prints_a_table_and_writes_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sanp.cli.app import make_app

    monkeypatch.setattr(runtimes, "RUNTIMES", {"torch eager": runtimes.RUNTIMES["torch eager"]})
    figure = tmp_path / "figure.html"
    command = ["bench", "tests.engine.bench.test_bench:small", "--input", "1,3,16,16", "--seconds", "0.01"]
    shown = CliRunner().invoke(make_app(command), [*command, "--figure", str(figure)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "67% pruned" in shown.stdout
    page = figure.read_text(encoding="utf-8")
    assert "What pruning saves in time" in page and "torch eager" in page
    assert json.loads(figure.with_suffix(".json").read_text())["network"] == command[1]
    said = shown.stderr.splitlines()
    assert [line for line in said if "torch eager" in line] == ["preparing the dense network in torch eager ..."]
    assert said[-1].startswith("timing 5 networks in turns")


def test_a_run_is_timed_with_its_own_images_and_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sanp.cli.app import make_app
    from sanp.experiments.run import train
    from sanp.experiments.run_folder import read_report

    tiny_run.install(monkeypatch)
    monkeypatch.setattr(runtimes, "RUNTIMES", {"torch eager": runtimes.RUNTIMES["torch eager"]})
    train(tiny_run.recipe(), tmp_path / "run")
    shown = CliRunner().invoke(
        make_app(["bench"]),
        ["bench", str(tmp_path / "run"), "--seconds", "0.01", "--pruned", "0.3", "--json"],
        catch_exceptions=False,
    )
    rows = {row["what"]: row for row in json.loads(shown.stdout.splitlines()[0])["rows"]}
    report = read_report(tmp_path / "run")
    costs = [cost / report["dense_flops"] for cost in report["per_sample"][:32]]  # calls take turns through 32 images
    assert rows["engine, as it is"]["kept"] == pytest.approx(sum(costs) / 32, rel=1e-5)
    assert rows["engine, 30% pruned"]["kept"] > rows["engine, as it is"]["kept"]
    assert (tmp_path / "run" / "bench.html").exists()


LINE = {
    "network": "net", "batch": 1, "threads": 1,
    "rows": [
        {"what": "ONNX Runtime", "kept": 1, "ms": 2.0, "of_best_dense": 1.0, "of_own_dense": 1.25},
        {"what": "engine, dense", "kept": 1, "ms": 1.6, "of_best_dense": 0.8, "of_own_dense": 1.0},
        {"what": "engine, 67% pruned", "kept": 0.33, "ms": 0.5, "of_best_dense": 0.25, "of_own_dense": 0.3125},
    ],
}  # fmt: skip


def test_the_newest_line_of_a_network_is_the_table_s() -> None:
    older = {**LINE, "rows": [{**row, "ms": 9.0, "of_best_dense": 1.0} for row in LINE["rows"]]}
    assert engine_table([older, LINE]).splitlines() == [
        "| | batch | threads | best dense runtime | nothing pruned | 67% pruned | bf16 | int8 |",
        "|---|---|---|---|---|---|---|---|",
        "| net | 1 | 1 | ONNX Runtime, 2.00 ms | 1.2 (1.0) | 4.0 (3.2) |  |  |",
    ]


def test_the_newest_gain_by_threads_is_the_table_s() -> None:
    line = {"network": "net", "batch": 1, "threads": 2, "gains": {"engine": 1.2345}}
    assert threads_table(
        [
            line,
            {**line, "gains": {"engine": 1.9, "other": 1.5}},
            {**line, "batch": 64, "fastest tenth": {"engine": 1.5}},
        ]
    ).splitlines() == [
        "| | batch | threads | engine | other |",
        "|---|---|---|---|---|",
        "| net | 1 | 2 | 1.90 | 1.50 |",
        "| net | 64 | 2 | 1.23 (1.50) |  |",
    ]


def test_a_result_with_open_gates_is_in_the_table_of_zoos_alone() -> None:
    gates_open = {"what": "engine, gates open", "kept": 1.0, "ms": 9.0, "of_best_dense": 0.9, "of_own_dense": 1.1}
    half = {"what": "engine, 50% pruned", "kept": 0.5, "ms": 5.0, "of_best_dense": 0.5, "of_own_dense": 0.6}
    foreign = {**LINE, "network": "foreign", "rows": [*LINE["rows"], gates_open, half]}
    assert without_open_gates([LINE, foreign]) == [LINE]
    assert zoo_table([LINE, foreign]).splitlines()[2:] == ["| foreign | ONNX Runtime, 2.00 ms | 1.2 | 1.1 | 2.0 |"]


def test_trained_networks_have_their_own_gates_in_both_precisions() -> None:
    dense = {"what": "OpenVINO int8", "kept": 1, "ms": 1.0, "of_best_dense": 0.5, "of_own_dense": 0.6}
    own = {"what": "engine, as it is", "kept": 0.325, "ms": 0.8, "of_best_dense": 0.4, "of_own_dense": 0.5}
    line = {**LINE, "rows": [*LINE["rows"], dense, own], "int8": [{**own, "ms": 0.4, "of_best_dense": 0.2}]}
    older = {**line, "int8": [own]}
    assert trained_table([older, line]).splitlines() == [
        "|  | batch | FLOPs | best dense runtime | dense, int8 | pruned | pruned, int8 |",
        "|---|---|---|---|---|---|---|",
        "| net | 1 | 32.5% | ONNX Runtime, 2.00 ms | 2.0 | 2.5 | 5.0 |",
    ]


def test_gates_that_all_decide_to_stay_open_are_a_row_of_their_own() -> None:
    images = random_images((3, 16, 16), 4)
    net = SmallNet(width=16).eval()
    config = BenchConfig(seconds=0.01, pruned=(0.0,), runtimes=("torch eager",))
    found = bench("small", net, sanp.gate(net, images[:1]).eval(), images, config)
    assert [(row.what, row.kept) for row in found.rows[1:]] == [("engine, dense", 1.0), ("engine, gates open", 1.0)]


def test_the_figure_has_the_ideal_line_and_every_point() -> None:
    ideal, own, others = time_against_flops([LINE]).data
    assert list(ideal.x) == list(ideal.y) == [0, 1]
    assert list(zip(own.x, own.y, strict=True)) == [(0.33, 0.25), (1, 0.8)]
    assert list(others.y) == [1.0]
    with pytest.raises(SanpError, match="ending"):
        write_figure(time_against_flops([LINE]), Path("figure.gif"))


@pytest.mark.parametrize("document", ["README.md", "docs/engine.md"])
def test_the_documents_tables_are_what_the_results_say(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = list(read_results(ROOT / "results" / "engine.jsonl"))
    assert filled(text, "engine", engine_table(without_open_gates(lines))) == text
    if document == "docs/engine.md":
        assert filled(text, "zoo", zoo_table(lines)) == text
        assert filled(text, "threads", threads_table(read_results(ROOT / "results" / "threads.jsonl"))) == text


@pytest.mark.parametrize("given", [{"threads": 10**9}, {"threads": 2**62}, {"pruned": (0.5,) * 3000}])
def test_more_threads_or_costs_than_can_be_measured_are_refused_at_once(given: dict[str, object]) -> None:
    with pytest.raises(SanpError, match="give at most"):
        BenchConfig(**given)  # type: ignore[arg-type]

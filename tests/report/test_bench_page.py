"""The page of a benchmark: what stands first, every number in words and in a table, and nothing from outside."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sanp.engine.bench.bench import Bench, BenchRow
from sanp.report.bench_page import render_bench, write_bench
from sanp.report.charts.times import time_bars, time_by_flops
from tests.report.test_page import Elements

ROWS = (
    BenchRow("torch eager", 1.0, 6.0, 1.5, 3.0),
    BenchRow("OpenVINO", 1.0, 4.0, 1.0, 2.0),
    BenchRow("OpenVINO int8", 1.0, 1.0, 0.25, 0.5),
    BenchRow("engine, dense", 1.0, 2.0, 0.5, 1.0),
    BenchRow("engine, as it is", 0.25, 0.8, 0.2, 0.4),
    BenchRow("engine, 50% pruned", 0.5, 1.25, 0.3125, 0.625),
)
FOUND = Bench("<b>net", 1, 1, "a processor", ROWS, {"ONNX Runtime": "onnxruntime is not installed"})


def test_the_answer_comes_first() -> None:
    words = " ".join(Elements(render_bench(FOUND)).words.split())
    # 4 ms dense in the fastest runtime and 2 ms dense in the engine, against 0.8 ms
    said = "With 25.0% of its FLOPs the network takes 0.8 ms an image: 5.0 times faster than dense in OpenVINO"
    assert said in words and "and 2.5 times faster than dense in the same engine" in words
    assert words.index(said) < words.index("All that was timed")
    assert "ONNX Runtime is left out: onnxruntime is not installed" in words
    assert "One image in each call, one thread, pinned; the engine in fp32; processor: a processor." in words
    assert "4.00 times faster than OpenVINO" in words  # int8: 1 ms


def test_the_page_is_one_file_that_asks_for_nothing_and_takes_names_as_text(tmp_path: Path) -> None:
    path = write_bench(FOUND, tmp_path / "bench.html")
    elements = Elements(path.read_text(encoding="utf-8"))
    links = [attributes.get(name) for _, attributes in elements.found for name in ("src", "href") if name in attributes]
    assert links == ["data:,"] and path.stat().st_size < 3_000_000
    assert not elements.named("b") or "<b>net" in elements.words
    assert sum(each.get("id") == "download" for each in elements.named("select")) == 1


@pytest.mark.parametrize("chart", [time_bars(FOUND), time_by_flops(FOUND)], ids=lambda chart: str(chart.key))
def test_a_chart_says_in_words_what_it_shows(chart) -> None:  # type: ignore[no-untyped-def]
    assert len(chart.title) > 20 and re.search(r"\d", chart.text)
    assert all(f"{row.ms:.2f}" in chart.text for row in ROWS if row.what.startswith("engine") and row.ms >= 1)


def test_bars_stand_in_the_order_of_time_and_the_curve_in_that_of_cost() -> None:
    bars = time_bars(FOUND).figure.data[0]
    assert list(bars.x) == [0.8, 1.0, 1.25, 2.0, 4.0, 6.0] and bars.y[0] == "engine, as it is"
    ideal, own, others = time_by_flops(FOUND).figure.data
    assert (list(ideal.x), list(ideal.y)) == ([0, 1], [0, 2.0])
    assert (list(own.x), list(own.y)) == ([0.25, 0.5, 1.0], [0.8, 1.25, 2.0])
    assert list(others.y) == [6.0, 4.0, 1.0]
    assert time_by_flops(FOUND).title == "With 25% of the FLOPs the engine takes 40% of its dense time"


def test_what_ran_in_torch_is_said() -> None:
    partly = replace(FOUND, in_torch=("engine, dense", "engine, as it is"))
    words = Elements(render_bench(partly)).words
    assert "a part ran in torch, which skips nothing" in words and ": engine, dense; engine, as it is" in words
    assert "ran in torch" not in Elements(render_bench(FOUND)).words


def test_without_another_runtime_the_engine_is_compared_with_itself() -> None:
    alone = Bench("net", 8, 2, "a processor", tuple(row for row in ROWS if row.what.startswith("engine")), {})
    words = " ".join(Elements(render_bench(alone)).words.split())
    assert "takes 0.8 ms an image, 2.5 times faster than dense in the same engine." in words
    assert "8 images in each call, 2 threads" in words

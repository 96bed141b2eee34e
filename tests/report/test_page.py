import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sanp.core.errors import SanpError
from sanp.report import page
from sanp.report.figure_files import write_figures
from sanp.report.page import render, write_page
from sanp.report.run_data import read_runs
from sanp.report.run_section import run_section
from tests.tools import tiny_run


class Elements(HTMLParser):
    """Every element with its attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.words += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def second(folder: Path, **changes: object) -> Path:
    """A copy of a run with another report."""
    other = Path(shutil.copytree(folder, folder.parent / f"other-{len(changes)}"))
    report = json.loads((other / "report.json").read_text()) | changes
    (other / "report.json").write_text(json.dumps(report))
    return other


def test_the_page_is_one_small_file_that_asks_for_nothing(folder: Path, tmp_path: Path) -> None:
    path = write_page([folder], tmp_path / "page.html")
    assert path.stat().st_size < 6_000_000
    elements = Elements(path.read_text(encoding="utf-8"))
    links = [attributes.get(name) for _, attributes in elements.found for name in ("src", "href") if name in attributes]
    assert links and all(link is not None and link.startswith(("data:", "#")) for link in links)
    assert not elements.named("iframe") and "@import" not in path.read_text(encoding="utf-8")
    policy = next(each["content"] for each in elements.named("meta") if "http-equiv" in each)
    assert policy is not None and policy.startswith("default-src 'none'")


def test_the_answer_comes_first_and_in_the_reports_own_numbers(folder: Path) -> None:
    words = " ".join(Elements(render(read_runs([folder]))).words.split())
    report = json.loads((folder / "report.json").read_text())
    said = f"{report['kept']:.1%} of the multiply-adds are left (budget 50%), and {report['accuracy']:.2%} of 128"
    assert said in words
    assert words.index(said) < words.index("Training") < words.index("Layers") < words.index("Channels")


def test_every_chart_says_what_to_see_in_words_and_names_its_axes(folder: Path) -> None:
    section = run_section(read_runs([folder])[0])
    assert section.channels is not None
    charts = section.charts + [chart for charts in section.channels.options.values() for chart in charts]
    assert {chart.key for chart in charts} >= {"training", "kept", "types", "flops", "histogram", "classes", "usage"}
    for chart in charts:
        assert len(chart.title) > 20 and len(chart.text) > 40 and re.search(r"\d", chart.text), chart.key
        layout = chart.figure.to_dict()["layout"]
        below = [
            axis for name, axis in layout.items() if name.startswith("xaxis") and axis.get("title", {}).get("text")
        ]
        assert len(below) == 1, chart.key
    elements = Elements(render(read_runs([folder])))
    plots = [each for each in elements.named("div") if each.get("class") == "plot"]
    ids = {each.get("id") for _, each in elements.found}
    assert len(plots) == len(section.charts) + 2
    assert all(set(str(each["aria-labelledby"]).split()) <= ids and each["role"] == "img" for each in plots)
    assert all(image.get("alt") for image in elements.named("img"))
    assert sum(each.get("id") == "download" for each in elements.named("select")) == 1


def test_several_runs_are_compared_and_each_has_its_part(folder: Path) -> None:
    better = second(folder, accuracy=0.999, flops=1.0)
    elements = Elements(render(read_runs([folder, better])))
    assert [each.get("id") for each in elements.named("article")] == ["run0", "run1"]
    assert "1 of 2 runs are on the front" in elements.words
    assert "On the front: other-2." in elements.words


def test_a_page_that_would_be_too_large_says_what_it_leaves_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = read_runs([folder, second(folder, accuracy=0.5)])
    whole = render(sources)
    monkeypatch.setattr(page, "LARGEST_PAGE", len(whole.encode()) - 1000)
    smaller = render(sources)
    assert len(smaller.encode()) <= page.LARGEST_PAGE + 1000
    assert [each.get("id") for each in Elements(smaller).named("article")] == ["run0"]
    assert "Make a page of their own for: other-1" in Elements(smaller).words


def test_names_from_the_data_cannot_become_markup(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = '</script><script>alert("1")</script>'
    named = replace(tiny_run.squares(), classes=(evil, "<b>", "c", "d"))
    monkeypatch.setattr("sanp.experiments.run_folder.load_data", lambda *_: named)
    text = render(read_runs([folder]))
    assert evil not in text and "alert(&#34;1&#34;)" in text


def test_without_the_data_the_page_shows_what_the_report_knows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise SanpError("the squares are not here")

    monkeypatch.setattr("sanp.experiments.run_folder.load_data", gone)
    told: list[str] = []
    elements = Elements(render(read_runs([folder], tell=told.append)))
    assert "by class are not shown: the squares are not here" in elements.words
    assert told == [f"{folder}: images and channels by class are not shown: the squares are not here"]
    assert not elements.named("img") and len(elements.named("select")) == 1  # that of the downloads
    assert "The dearest image costs" in elements.words


def test_a_network_that_prunes_without_looking_has_no_image_charts(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "dense.safetensors").read_bytes())
    report = json.loads((folder / "report.json").read_text())
    flat = second(folder, per_sample=[report["dense_flops"]] * 128)
    words = Elements(render(read_runs([flat]))).words
    assert "Every image costs the same" in words and "No layer's channels depend on the image" in words


def test_a_run_without_a_record_of_its_training_says_so(folder: Path) -> None:
    (folder / "metrics.jsonl").unlink()
    assert "kept no record of its training" in Elements(render(read_runs([folder]))).words


def test_mistakes_are_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SanpError, match="is a folder"):
        write_page([folder], tmp_path)
    with pytest.raises(SanpError, match="choose one of png, svg, pdf"):
        write_figures([folder], tmp_path / "figures", "bmp")
    with pytest.raises(SanpError, match="not a run folder"):
        write_page([tmp_path / "nothing"], tmp_path / "page.html")

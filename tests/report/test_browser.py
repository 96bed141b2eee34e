"""The page and the explorer in a real browser; skipped where there is none (make browser-test installs one)."""

import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sanp.report.bench_page import write_bench
from sanp.report.charts.channels import alikeness
from sanp.report.figure_files import write_figures
from sanp.report.page import write_page
from tests.report.test_bench_page import FOUND
from tests.tools import tiny_run

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: run make browser-test")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: run make browser-test")

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
SCREENSHOTS = os.environ.get("SCREENSHOTS")
"""folder to keep the screenshots in"""


@dataclass
class Visit:
    """A page that is open, and everything that went wrong on it or left it."""

    page: "playwright.Page"
    troubles: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(
    params=[(390, "dark"), (820, "light"), (1440, "light")], ids=["phone-dark", "tablet-light", "desktop-light"]
)
def visit(browser: "playwright.Browser", request: pytest.FixtureRequest) -> Iterator[Visit]:
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(120_000)  # of which a machine with other work may need some
    visit = Visit(page)
    page.on("console", lambda message: visit.troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visit.troubles.append(str(error)))
    page.on("request", lambda sent: visit.requests.append(sent.url))
    yield visit
    context.close()


def check_fits_and_keep(visit: Visit, name: str, tmp_path: Path) -> None:
    """Nothing is wider than the screen; takes the screenshot."""
    width = visit.page.viewport_size["width"]
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    path = Path(SCREENSHOTS or tmp_path) / f"{name}-{width}.png"
    visit.page.screenshot(path=path, full_page=True)
    with Image.open(path) as image:
        assert image.width == width and image.height > 1000


@pytest.fixture
def opened(folder: Path, visit: Visit) -> Visit:
    """The page of two runs."""
    other = Path(shutil.copytree(folder, folder.parent / "another"))
    path = write_page([folder, other], folder.parent / "page.html")
    visit.page.goto(path.as_uri())
    visit.page.wait_for_selector("html[data-ready]", state="attached")
    return visit


def test_the_page_opens_without_errors_or_requests(opened: Visit, tmp_path: Path) -> None:
    page = opened.page
    assert page.locator("figure.chart .main-svg").count() >= page.locator("figure.chart").count() > 10
    assert page.locator("#trouble").is_hidden()
    check_fits_and_keep(opened, "report", tmp_path)
    outside = [url for url in opened.requests if not url.startswith(("data:", "blob:"))]
    assert len(outside) == 1 and outside[0].startswith("file:")
    assert opened.troubles == []


def test_the_layer_selector_changes_both_charts(opened: Visit) -> None:
    page = opened.page
    cells = "plot => JSON.stringify(plot.calcdata[0][0].z.map(row => [...row]))"
    plot = page.locator("#run0-usage .plot")
    other, shown = page.locator("#run0-layer option").all_inner_texts()  # the deepest layer is shown first
    before = plot.evaluate(cells)
    assert page.locator("#run0-usage-title").inner_text().startswith(f"{shown}:")
    page.select_option("#run0-layer", other)
    assert page.locator("#run0-usage-title").inner_text().startswith(f"{other}:")
    assert page.locator("#run0-alike-title").inner_text().startswith(f"{other}:")
    assert page.locator("#run1-usage-title").inner_text().startswith(f"{shown}:")
    assert plot.evaluate(cells) != before
    assert opened.troubles == []


def test_a_table_sorts_by_the_heading_that_is_pressed(opened: Visit) -> None:
    page = opened.page
    table = page.locator("#run0-kept details")
    table.locator("summary").click()

    def column() -> list[float]:
        return [float(text) for text in table.locator("tbody td:nth-child(7)").all_inner_texts()]

    unsorted = column()
    heading = table.get_by_role("button", name="FLOPs before")
    heading.click()
    assert column() == sorted(unsorted) and table.locator("th[aria-sort=ascending]").count() == 1
    heading.click()
    assert column() == sorted(unsorted, reverse=True) != sorted(unsorted)
    table.get_by_role("button", name="layer").click()
    assert column() == unsorted


def test_the_theme_changes_text_and_charts(opened: Visit) -> None:
    page = opened.page
    color = "getComputedStyle(document.querySelector('#run0-kept .xtick text')).fill"
    before = page.evaluate(color)
    page.click("#theme")
    page.wait_for_function(f"{color} !== '{before}'")
    assert page.evaluate(color) == page.evaluate("getComputedStyle(document.body).color")


def test_axes_show_their_last_label_and_titles_stand_below_the_names(opened: Visit) -> None:
    page = opened.page
    assert page.locator("#run0-types .xtick text").last.text_content() == "100%"
    over = """[...document.querySelectorAll('.plot')].flatMap(plot => {
        const title = plot.querySelector('.xtitle')?.getBoundingClientRect();
        const map = plot.querySelector('.heatmaplayer image')?.getBoundingClientRect();
        const names = [...plot.querySelectorAll('.xtick text')].filter(text => text.textContent.trim());
        const under = [...names.map(text => text.getBoundingClientRect().bottom), ...(map ? [map.bottom] : [])];
        return title && under.some(bottom => title.top < bottom - 3) ? [plot.closest('figure').id] : [];
    })"""
    assert page.evaluate(over) == []


def test_the_axis_title_of_a_map_stands_below_short_names(visit: Visit, tmp_path: Path) -> None:
    shares = np.linspace(0, 1, 4 * 16).reshape(4, 16)
    chart = alikeness("down", ["cross", "disc", "ring", "square"], shares)
    path = tmp_path / "map.html"
    path.write_text(f"<body>{chart.figure.to_html(full_html=False)}</body>", encoding="utf-8")
    visit.page.goto(path.as_uri())
    visit.page.wait_for_selector(".xtitle", state="attached")
    bottoms = "[...document.querySelectorAll('.xtick text')].map(text => text.getBoundingClientRect().bottom)"
    assert (
        visit.page.evaluate("document.querySelector('.xtitle').getBoundingClientRect().top")
        > max(visit.page.evaluate(bottoms)) - 3
    )


def test_the_heading_has_its_tools_in_one_line(opened: Visit) -> None:
    tops = opened.page.evaluate(
        "[...document.querySelectorAll('.tools > *')].map(each => each.getBoundingClientRect())"
        ".map(box => (box.top + box.bottom) / 2)"
    )
    assert len(tops) == 3 and max(tops) - min(tops) < 4


@pytest.mark.parametrize("format", ["PNG", "SVG"])
def test_a_chart_can_be_downloaded(opened: Visit, format: str) -> None:
    with opened.page.expect_download() as download:
        opened.page.locator("#download").select_option(f"run0-histogram|{format.lower()}")
    assert download.value.suggested_filename == f"run0-histogram.{format.lower()}"
    content = Path(download.value.path()).read_bytes()
    assert content.startswith(b"\x89PNG" if format == "PNG" else b"<svg")
    assert opened.troubles == []


def test_it_prints_light_and_within_the_paper(opened: Visit, tmp_path: Path) -> None:
    page = opened.page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    widths = page.evaluate("[...document.querySelectorAll('.main-svg')].map(svg => svg.getBoundingClientRect().width)")
    assert widths and max(widths) <= 700
    assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.fixture
def timed(tmp_path: Path, visit: Visit) -> Visit:
    """The page of a benchmark."""
    visit.page.goto(write_bench(FOUND, tmp_path / "bench.html").as_uri())
    visit.page.wait_for_selector("html[data-ready]", state="attached")
    return visit


def test_the_page_of_a_benchmark_draws_sorts_and_downloads(timed: Visit, tmp_path: Path) -> None:
    page = timed.page
    assert page.locator("figure.chart .main-svg").count() >= page.locator("figure.chart").count() == 2
    assert page.locator("#trouble").is_hidden()
    check_fits_and_keep(timed, "bench", tmp_path)
    table = page.locator("article > .scroll table")
    table.get_by_role("button", name="ms an image").click()
    shown = [float(text) for text in table.locator("tbody td:nth-child(3)").all_inner_texts()]
    assert shown == sorted(row.ms for row in FOUND.rows)
    with page.expect_download() as download:
        page.locator("#download").select_option("bench-times|svg")
    assert Path(download.value.path()).read_bytes().startswith(b"<svg")
    assert [url for url in timed.requests if not url.startswith(("data:", "blob:", "file:"))] == []
    assert timed.troubles == []


def test_texts_on_a_chart_do_not_leave_it(timed: Visit) -> None:
    """The numbers beside the bars and the names before them."""
    outside = """[...document.querySelectorAll('.plot')].flatMap(plot => {
        const box = plot.getBoundingClientRect();
        return [...plot.querySelectorAll('text')].filter(text => {
            const its = text.getBoundingClientRect();
            return its.width && (its.left < box.left - 1 || its.right > box.right + 1);
        }).map(text => text.textContent);
    })"""
    assert timed.page.evaluate(outside) == []


@pytest.fixture
def explored(folder: Path, visit: Visit) -> Iterator[Visit]:
    """The explorer's page."""
    pytest.importorskip("dash", reason="no dash here: run make browser-test")
    from sanp.report.explorer.server import serve

    server, address = serve(folder, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    visit.page.goto(address)
    visit.page.wait_for_selector("#cost")
    yield visit
    visit.page.goto("about:blank")
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_slider_changes_the_cost(explored: Visit, tmp_path: Path) -> None:
    page = explored.page
    before = page.inner_text("#cost")
    page.get_by_role("slider", name="mean cost, of the dense network's").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('#budget-text').textContent.startsWith('Set to')")
    page.wait_for_function(f"document.querySelector('#cost').textContent !== '{before}'")
    assert re.search(r"of the dense cost: [\d.]+k? FLOPs, [\d.]+ ms", page.inner_text("body"))
    assert float(page.inner_text("#cost").rstrip("%")) < float(before.rstrip("%"))
    check_fits_and_keep(explored, "explore", tmp_path)
    here = page.url
    assert all(url.startswith((here, "data:", "blob:")) for url in explored.requests)
    assert explored.troubles == []


def test_an_image_is_picked_and_another_is_dropped(explored: Visit, tmp_path: Path) -> None:
    page = explored.page
    picked = page.locator(".offer button").nth(4)
    name = picked.locator("img").get_attribute("alt")
    picked.click()
    page.wait_for_function(f"document.querySelector('#picture').alt.startsWith('{name},')")
    path = tmp_path / "own.png"
    Image.fromarray(tiny_run.squares().test.images[0].numpy().transpose(1, 2, 0)).save(path)
    page.get_by_label("your own image", exact=True).set_input_files(path)
    page.wait_for_function("document.querySelector('#picture').alt === 'your own image'")
    (tmp_path / "broken.png").write_text("not an image")
    page.set_input_files("#upload input[type=file]", tmp_path / "broken.png")
    page.wait_for_function("document.querySelector('#trouble').textContent.includes('cannot be read as an image')")
    (tmp_path / "notes.txt").write_text("no image either")
    page.set_input_files("#upload input[type=file]", tmp_path / "notes.txt")
    page.wait_for_function("document.querySelector('#trouble').textContent.includes('cannot be read as an image')")
    (tmp_path / "huge.png").write_bytes(bytes(17 * 2**20))
    page.set_input_files("#upload input[type=file]", tmp_path / "huge.png")
    page.wait_for_function("document.querySelector('#too-large').textContent.includes('huge.png has 18 MB')")
    assert explored.troubles == []


@pytest.mark.parametrize(("format", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_figures_for_a_paper(folder: Path, tmp_path: Path, format: str, start: bytes) -> None:
    pytest.importorskip("kaleido", reason="no kaleido here: run make browser-test")
    paths = write_figures([folder], tmp_path / "figures", format)
    assert len(paths) > 10 and all(path.read_bytes().startswith(start) for path in paths)
    captions = (tmp_path / "figures" / "captions.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in captions for path in paths)

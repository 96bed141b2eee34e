"""The explorer without a browser: settings, answers, and what its server refuses."""

import base64
import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sanp.core.errors import SanpError
from sanp.report.explorer.explorer import Explorer
from tests.tools import tiny_run

pytest.importorskip("dash", reason="the explorer needs dash: pip install 'sanp[explore]'")


@pytest.fixture
def explorer(folder: Path) -> Explorer:
    return Explorer(folder)


def test_a_smaller_budget_costs_less_and_the_trained_one_is_among_them(explorer: Explorer) -> None:
    shares = [setting.share for setting in explorer.settings]
    assert len(shares) > 3 and shares == sorted(shares)
    assert explorer.settings[explorer.trained].shift == 0
    pixels = explorer.image(0)
    costs = [answered.share for answered in explorer.answers(pixels)]
    assert costs[0] < costs[explorer.trained] < costs[-1]


def test_the_trained_setting_answers_as_the_evaluation_did(explorer: Explorer) -> None:
    report = json.loads((explorer.folder / "report.json").read_text())
    explorer.answer(explorer.image(0), 0)
    for position in range(5):
        answered, seen = explorer.answer(explorer.image(position), explorer.trained)
        assert float(seen.flops[0]) == report["per_sample"][position]
        assert answered.probabilities.sum() == pytest.approx(1, abs=1e-5)


def test_a_dropped_file_becomes_pixels_of_the_right_size(explorer: Explorer) -> None:
    with io.BytesIO() as file:
        Image.new("RGB", (40, 20), (10, 20, 30)).save(file, "PNG")
        pixels = explorer.decode(file.getvalue())
    assert pixels.shape == (3, 8, 8) and pixels[:, 0, 0].tolist() == [10, 20, 30]
    with pytest.raises(SanpError, match="this file cannot be read as an image"):
        explorer.decode(b"nothing")
    with pytest.raises(SanpError, match="does not exist"):
        explorer.image(128)


def test_an_ungated_network_has_one_setting(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "dense.safetensors").read_bytes())
    explorer = Explorer(folder)
    assert [setting.share for setting in explorer.settings] == [1.0]


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """A server on a free port."""
    from sanp.report.explorer.app import serve

    server, address = serve(folder, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield address
    server.shutdown()
    thread.join()
    server.server_close()


def _get(address: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_the_page_is_on_loopback_and_names_no_other_host(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    code, text = _get(address)
    assert code == 200 and "http://" not in text and "https://" not in text


def test_a_page_elsewhere_cannot_reach_it_by_a_name_of_its_own(address: str) -> None:
    assert _get(address, Host="evil.example")[0] == 403
    assert _get(address, Host=address.split("/")[2].replace("127.0.0.1", "localhost"))[0] == 200


def test_a_taken_port_is_told(folder: Path, address: str) -> None:
    from sanp.report.explorer.app import serve

    with pytest.raises(SanpError, match="cannot be used"):
        serve(folder, int(address.rstrip("/").rpartition(":")[2]))


def test_the_charts_show_what_the_network_did(explorer: Explorer) -> None:
    from sanp.report.explorer.app import _pixels, _show

    show = _show(explorer)({"position": 3}, explorer.trained, False)
    figures = [part for part in show if hasattr(part, "to_dict")]
    _, seen = explorer.answer(explorer.image(3), explorer.trained)
    cells = np.asarray(figures[2].data[0].z)
    assert cells.shape == (len(seen.open), 8)
    assert cells.tolist() == [mask[0].tolist() for mask in seen.open.values()]
    own = base64.b64encode(explorer.image(3).tobytes()).decode()
    pixels, label = _pixels(explorer, {"pixels": own})
    assert label is None and np.array_equal(pixels, tiny_run.squares().test.images[3].numpy())

import base64

import numpy as np
import pytest

from sanp.report.explorer.explorer import Explorer
from tests.tools import tiny_run

pytest.importorskip("dash", reason="the explorer needs dash: pip install 'sanp[explore]'")


def test_the_charts_show_what_the_network_did(explorer: Explorer) -> None:
    from sanp.report.explorer.app import pixels_of, show_answer

    show = show_answer(explorer)({"position": 3}, explorer.trained, False)
    figures = [part for part in show if hasattr(part, "to_dict")]
    _, seen = explorer.answer(explorer.image(3), explorer.trained)
    cells = np.asarray(figures[2].data[0].z)
    assert cells.shape == (len(seen.open), 8)
    assert cells.tolist() == [mask[0].tolist() for mask in seen.open.values()]
    own = base64.b64encode(explorer.image(3).tobytes()).decode()
    pixels, label = pixels_of(explorer, {"pixels": own})
    assert label is None and np.array_equal(pixels, tiny_run.squares().test.images[3].numpy())


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"null", b"{" * 1000, b'{"output": 1}', b'{"output": "offer.children", "inputs": []}',
     b'{"output": "offer.children", "outputs": {"id": "offer", "property": "children"}, "changedPropIds": [], '
     b'"inputs": [{"id": "others", "property": "n_clicks", "value": "x"}]}'],
)  # fmt: skip
def test_a_request_that_is_none_is_one_line_and_no_traceback(
    explorer: Explorer, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    from sanp.report.explorer.app import make_explorer_app

    client = make_explorer_app(explorer).server.test_client()
    answer = client.post("/_dash-update-component", data=body, content_type="application/json")
    assert answer.status_code == 400
    assert len(answer.text.splitlines()) <= 8  # the server's own page for what is not JSON has a few lines
    assert "Traceback" not in answer.text + caplog.text


def test_pixels_of_another_size_are_refused(explorer: Explorer) -> None:
    from sanp.report.explorer.app import pixels_of

    for count in (0, 8 * 8, 2 * 8 * 8, 6 * 8 * 8):
        with pytest.raises(ValueError, match="cannot reshape"):
            pixels_of(explorer, {"pixels": base64.b64encode(bytes(count)).decode()})

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

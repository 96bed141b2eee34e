import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanp.core.errors import SanpError

pytest.importorskip("dash", reason="the explorer needs dash: pip install 'sanp[explore]'")


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """A server on a free port."""
    from sanp.report.explorer.server import serve

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
    from sanp.report.explorer.server import serve

    with pytest.raises(SanpError, match="cannot be used"):
        serve(folder, int(address.rstrip("/").rpartition(":")[2]))

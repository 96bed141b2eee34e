import builtins
import os
import pickle
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sanp.core.errors import SanpError
from sanp.data import pickles

ROWS = np.arange(2 * 3072, dtype=np.uint64).astype(np.uint8).reshape(2, 3072)

# What Python 2 wrote, opcode for opcode, as in the official files, with two images instead of ten thousand.
OFFICIAL = (
    b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05(K\x06K\x09e"
    b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09"
    b"(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b"
    b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x18\x00\x00" + ROWS.tobytes() + b"tb"
    b"U\tfilenamesq\x0c]q\r(U\x05a.pngU\x05b.pngeu."
)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "data_batch_1"
    path.write_bytes(content)
    return path


def test_a_file_as_python_2_wrote_it_is_read(tmp_path: Path) -> None:
    found = pickles.read_cifar_file(write(tmp_path, OFFICIAL))
    assert found["batch_label"] == b"training batch 1 of 5"
    assert found["labels"] == [6, 9]
    assert found["filenames"] == [b"a.png", b"b.png"]
    assert np.array_equal(found["data"], ROWS)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_as_python_3_writes_it_is_read(tmp_path: Path, protocol: int, order: Any) -> None:
    content = {b"data": np.asarray(ROWS, order=order), "fine_labels": [3, 300], "filenames": [b"x", "y"]}
    found = pickles.read_cifar_file(write(tmp_path, pickle.dumps(content, protocol=protocol)))
    assert np.array_equal(found["data"], ROWS)  # type: ignore[arg-type]
    assert found["fine_labels"] == [3, 300]
    assert found["filenames"] == [b"x", "y"]


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def calls_from(place: Path) -> list[object]:
    order = f"touch {place / 'harm'}"
    return [
        Call(os.system, order),
        Call(builtins.eval, f"__import__('os').system({order!r})"),
        Call(builtins.exec, f"__import__('os').system({order!r})"),
        Call(open, str(place / "harm"), "w"),
        Call(np.load, str(place / "harm")),
        np.array([Call(os.system, order)], dtype=object),
        np.zeros(3),
        np.zeros(3, dtype=[("a", np.uint8)]),
        np.uint8(3),
        {1, 2},
        2**70,
        1.5,
        bytearray,
        Path("x"),
    ]


@pytest.mark.parametrize("protocol", range(6))
def test_a_file_that_calls_or_holds_anything_else_is_refused_and_does_nothing(tmp_path: Path, protocol: int) -> None:
    for hostile in calls_from(tmp_path):
        for content in (hostile, {"data": hostile}, {"labels": [hostile]}):
            with pytest.raises(SanpError, match="is not a CIFAR file"):
                pickles.read_cifar_file(write(tmp_path, pickle.dumps(content, protocol=protocol)))
    assert [path.name for path in tmp_path.iterdir()] == ["data_batch_1"]


def short(name: str) -> bytes:
    return b"\x8c" + bytes([len(name)]) + name.encode()


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
UINT8 = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
ENTRY = b"\x80\x04}" + short("data")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        b"\x80\x02.",
        b"N.",
        b"]" * 100_000 + b"a" * 99_999 + b".",
        b"\x80\x04" + short("os") + short("system") + b"\x93.",
        b"\x80\x04" + short("numpy") + short("ndarray") + b"\x93" + short("tolist") + b"\x93.",
        b"(cos\nsystem\nS'true'\no.",
        b"(S'true'\nios\nsystem\n.",
        b"cos\nsystem\n)\x81.",
        b"Pidentity\n.",
        b"K\x01Q.",
        b"\x82\x01.",
        b"\x97.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
        b"\x80\x02T" + struct.pack("<i", 2**31 - 1) + b"x.",
        b"\x80\x02T" + struct.pack("<i", -1) + b"x.",
        b"\x80\x02h\x05.",
        b"\x80\x02a.",
        b"\x80\x02}e.",
        b"\x80\x02}(K\x01u.",
        b"\x80\x02}K\x01K\x01s.",
        ENTRY + ARRAY + b"(K\x01J\xff\xff\xff\x7fM\x00\x0c\x86" + UINT8 + b"\x89U\x01xtbs.",
        ENTRY + ARRAY + b"(K\x01J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86" + UINT8 + b"\x89U\x01xtbs.",
        ENTRY + ARRAY + b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R\x89U\x01xtbs.",
        ENTRY + ARRAY + b"(K\x01K\x01\x85" + UINT8 + b"\x89K\x01tbs.",
        ENTRY + b"}}b" + b"s.",
        ENTRY + b"cnumpy\nndarray\n(J\xff\xff\xff\x7ftRs.",
        b"\x80\x02}" + b"}" * (pickles.MOST_OPCODES + 1) + b".",
    ],
    ids=lambda content: repr(content[:24]),
)
def test_a_broken_or_forged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SanpError, match="is not a CIFAR file"):
        pickles.read_cifar_file(write(tmp_path, content))


def test_a_file_cannot_make_its_content_grow_in_memory(tmp_path: Path) -> None:
    text = b"x" * 100_000
    encode = b"c_codecs\nencode\nX" + struct.pack("<I", len(text)) + text + b"q\x00X\x06\x00\x00\x00latin1q\x01\x86R"
    again = b"c_codecs\nencode\nh\x00h\x01\x86R"
    content = b"\x80\x02](" + encode + again * 20_000 + b"e."  # 2 GB, were it followed
    huge_memo = OFFICIAL.replace(b"q\x01(", b"r\xff\xff\xff\xff(", 1)  # an array of 32 GB in the standard unpickler
    tracemalloc.start()
    try:
        with pytest.raises(SanpError, match="repeats its content"):
            pickles.read_cifar_file(write(tmp_path, content))
        assert pickles.read_cifar_file(write(tmp_path, huge_memo))["labels"] == [6, 9]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6


def test_a_file_larger_than_any_of_cifar_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1"
    with path.open("wb") as file:
        file.truncate(pickles.LARGEST_FILE + 1)
    with pytest.raises(SanpError, match="more than any CIFAR file"):
        pickles.read_cifar_file(path)
    with pytest.raises(SanpError, match="cannot be read"):
        pickles.read_cifar_file(tmp_path / "missing")
    with pytest.raises(SanpError, match="cannot be read"):
        pickles.read_cifar_file(tmp_path)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    for end in [*range(200), *range(200, len(OFFICIAL), 397)]:
        with pytest.raises(SanpError, match="is not a CIFAR file"):
            pickles.read_cifar_file(write(tmp_path, OFFICIAL[:end]))


def test_a_file_with_changed_bytes_is_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(0)
    outcomes = {"read": 0, "refused": 0}
    sources = [OFFICIAL, *(pickle.dumps({"data": ROWS[:, :9], "labels": [1, 2]}, protocol=p) for p in (2, 4, 5))]
    for _ in range(400):
        content = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(min(len(content), 300))] = rng.randrange(256)
        try:
            pickles.read_cifar_file(write(tmp_path, bytes(content)))
            outcomes["read"] += 1
        except SanpError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 40

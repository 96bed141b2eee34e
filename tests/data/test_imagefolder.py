import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sanp.core.errors import SanpError
from sanp.data import Augment, Batches, FileSplit, Split, load
from sanp.data import imagefolder as module
from sanp.data.decode import decode
from tests.data.image_files import noise, save


def folder_of(root: Path, *, splits: Iterable[str] = ("train", "val"), count: int = 3) -> Path:
    for split in splits:
        for label, name in enumerate(("cat", "dog")):
            for number in range(count):
                save(root / split / name / f"{number}.png", noise(10 * number + label))
    return root


def test_classes_are_the_folders_in_order_and_other_files_are_left_alone(tmp_path: Path) -> None:
    folder_of(tmp_path, splits=("train", "test"))
    save(tmp_path / "train" / "ant" / "deep" / "0.JPEG", noise(7), format="JPEG")
    (tmp_path / "train" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".cache").mkdir()
    found = load(f"imagefolder:{tmp_path}", size=16)
    assert found.classes == ("ant", "cat", "dog")
    assert found.train.labels.tolist() == [0, 1, 1, 1, 2, 2, 2]
    assert found.test.labels.tolist() == [1, 1, 1, 2, 2, 2]
    assert isinstance(found.train, Split)
    assert (found.channels, found.image_size, found.num_classes) == (3, 16, 3)
    assert np.array_equal(found.train.images[1].numpy(), decode(tmp_path / "train" / "cat" / "0.png", 16))


def test_test_is_taken_before_val_unless_it_has_no_class_folders(tmp_path: Path) -> None:
    folder_of(tmp_path, splits=("train", "val"))
    folder_of(tmp_path, splits=("test",), count=5)
    assert len(load(f"imagefolder:{tmp_path}").test) == 10
    for file in (tmp_path / "test").rglob("*.png"):
        file.rename(tmp_path / "test" / f"{file.parent.name}{file.name}")
    for name in ("cat", "dog"):
        (tmp_path / "test" / name).rmdir()
    assert len(load(f"imagefolder:{tmp_path}").test) == 6


def test_a_folder_that_cannot_be_trained_on_is_refused(tmp_path: Path) -> None:
    def refused(name: str, says: str, *splits: str) -> Path:
        root = folder_of(tmp_path / name, splits=splits)
        with pytest.raises(SanpError, match=says):
            load(f"imagefolder:{root}")
        return root

    refused("half", "has no val/ or test/", "train")
    refused("other", "has no train/", "val")
    root = folder_of(tmp_path / "more")
    save(root / "val" / "eel" / "0.png", noise(0))
    refused("more", r"classes that .*train lacks \(eel\)", "train")
    (root / "val" / "eel" / "0.png").unlink()
    (root / "val" / "eel").rmdir()
    (root / "train" / "fox").mkdir()
    refused("more", "fox holds no PNG, JPEG or WebP file", "train")
    save(tmp_path / "one" / "train" / "cat" / "0.png", noise(0))
    (tmp_path / "one" / "val").mkdir()
    with pytest.raises(SanpError, match="all 1 images are of class 0"):
        load(f"imagefolder:{tmp_path / 'one'}")
    broken = folder_of(tmp_path / "broken") / "train" / "dog" / "1.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(SanpError, match=r"train/dog/1\.png cannot be read as an image"):
        load(f"imagefolder:{tmp_path / 'broken'}")


def test_images_on_disk_give_the_same_batches_as_images_in_memory(tmp_path: Path) -> None:
    folder_of(tmp_path, count=9)
    memory, disk = (load(f"imagefolder:{tmp_path}", size=16, memory=most) for most in (2**30, 0))
    assert isinstance(memory.train, Split)
    assert isinstance(disk.train, FileSplit)
    assert (memory.mean, memory.std) == (disk.mean, disk.std)
    augment = Augment(flip=True, translate=2, cutout=4)
    ours, theirs = (
        Batches(data.train, 4, mean=data.mean, std=data.std, augment=augment, shuffle=True) for data in (memory, disk)
    )
    for first in (0, 0, 2):
        pairs = list(zip(ours.starting_at(first), theirs.starting_at(first), strict=True))
        assert len(pairs) == 5 - first
        assert all(torch.equal(x, x2) and torch.equal(y, y2) for (x, y), (x2, y2) in pairs)
    few = load(f"imagefolder:{tmp_path}", size=16, memory=0, limit=7)
    assert len(few.train) == 7


def test_no_more_than_two_batches_are_decoded_ahead_and_no_thread_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(tmp_path, count=20)
    started = 0
    lock = threading.Lock()

    def counted(path: Path, size: int) -> np.ndarray:
        nonlocal started
        with lock:
            started += 1
        return decode(path, size)

    found = load(f"imagefolder:{tmp_path}", size=16, memory=0)
    monkeypatch.setattr(module, "decode", counted)
    running = iter(Batches(found.train, 4, mean=found.mean, std=found.std))
    for used in range(1, 5):
        next(running)
        time.sleep(0.02)  # a slow network: the threads could run far ahead
        assert 4 * used <= started <= 4 * (used + 2)
    assert any(thread.name.startswith("sanp-decode") for thread in threading.enumerate())
    del running
    assert not any(thread.name.startswith("sanp-decode") for thread in threading.enumerate())


MEASURE = """
import resource, sys, torch
from sanp.data import Batches, load
torch.set_num_threads(1)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
found = load("imagefolder:" + sys.argv[1], size=256, memory=50_000_000)
images = sum(len(x) for x, _ in Batches(found.train, 8, mean=found.mean, std=found.std))
print(images, images * 3 * 256 * 256, peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
def test_memory_does_not_grow_with_the_number_of_images_on_disk(tmp_path: Path) -> None:
    first = save(tmp_path / "first.png", Image.new("1", (256, 256)))
    for folder, count in (("train/cat", 400), ("train/dog", 400), ("val/cat", 1), ("val/dog", 1)):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(count):
            os.link(first, tmp_path / folder / f"{number}.png")
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    images, size, growth = map(int, out.split())
    assert images == 800
    assert size > 150e6  # what they would take in memory
    assert growth < size / 2

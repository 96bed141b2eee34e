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
from sanp.data import Augment, Batches, FileSplit, Repeated, Split, load
from sanp.data import imagefolder as module
from sanp.data.decode import decode
from sanp.data.folder_check import check_folder, contact_sheet
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
    with pytest.raises(SanpError, match="train has one class, cat: give a folder of images for each of at least two"):
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

    def counted(path: Path, size: int, resize: str) -> np.ndarray:
        nonlocal started
        with lock:
            started += 1
        return decode(path, size, resize)  # type: ignore[arg-type]

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


@pytest.mark.parametrize("flat", [True, False])
def test_a_folder_without_test_images_is_split_by_itself_and_says_so(flat: bool, tmp_path: Path) -> None:
    root = folder_of(tmp_path / "x", splits=("." if flat else "train",), count=10)
    found, again = (load(f"imagefolder:{root}", size=16) for _ in range(2))
    assert torch.bincount(found.train.labels).tolist() == [8, 8]
    assert torch.bincount(found.test.labels).tolist() == [2, 2]
    assert torch.equal(found.test.images, again.test.images)  # type: ignore[attr-defined]
    seen = {bytes(image.numpy()) for image in found.train.images}  # type: ignore[attr-defined]
    assert not seen & {bytes(image.numpy()) for image in found.test.images}  # type: ignore[attr-defined]
    assert "4 of its 20 images" in found.notes[0]
    assert "the middle square" in found.notes[1]


def test_a_class_of_one_image_cannot_be_split(tmp_path: Path) -> None:
    folder_of(tmp_path, splits=(".",))
    save(tmp_path / "eel" / "0.png", noise(0))
    with pytest.raises(SanpError, match="the only image of its class"):
        load(f"imagefolder:{tmp_path}")


def test_few_images_may_be_read_several_times() -> None:
    split = Split(torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1), torch.tensor([0, 1, 0, 1, 0, 1]))
    thrice = Repeated(split, 3)
    assert len(thrice) == 18 and thrice.labels.tolist() == 3 * [0, 1, 0, 1, 0, 1] and thrice.shape == (1, 1, 1)
    order = torch.tensor([0, 6, 17, 5])
    assert next(thrice.read([order])).flatten().tolist() == [0, 0, 5, 5]
    assert thrice.take(order).labels.tolist() == [0, 0, 1, 1]
    batches = Batches(thrice, 6, mean=(0.0,), std=(1 / 255,), shuffle=True)
    values = torch.cat([x.flatten() for x, _ in batches]).round().int()
    assert torch.bincount(values).tolist() == [3] * 6


def test_a_folder_is_checked_and_shown_as_a_network_gets_it(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "x", splits=(".",), count=10)
    save(root / "dog" / "wide.png", noise(3, 40, 20))
    broken = root / "cat" / "3.png"
    broken.write_bytes(broken.read_bytes()[:60])
    found = check_folder(root, size=16)
    assert (found.classes, sum(found.train), sum(found.test)) == (("cat", "dog"), 17, 4)
    assert dict(found.sizes) == {(20, 14): 19, (40, 20): 1}
    # of 19 images of 20x14 and one of 40x20, the middle squares are 14x14 and 20x20
    assert found.cut == pytest.approx(1 - (19 * 14 * 14 + 20 * 20) / (19 * 20 * 14 + 40 * 20))
    assert len(found.broken) == 1 and "3.png" in found.broken[0]
    contact_sheet(root, tmp_path / "sheet.png", size=16, resize="pad")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (112 + 8 * 100, 2 * 100)
        ink = 255 - np.asarray(sheet.convert("L"), dtype=np.int64)[:, :110]
        assert all(ink[row : row + 100].sum() > 1000 for row in (0, 100))  # a name before each row
        red = np.asarray(sheet)[50, 112 + 50 :: 100]
        assert (255, 0, 0) in {tuple(pixel) for pixel in red.tolist()}  # in place of the broken image


def test_a_folder_of_one_class_is_told_which_folder_may_be_meant(tmp_path: Path) -> None:
    folder_of(tmp_path / "outer" / "photos", splits=(".",))
    with pytest.raises(SanpError, match=r"outer has one class, photos: .* if the folders in .*photos are the classes"):
        check_folder(tmp_path / "outer")
    save(tmp_path / "one" / "cat" / "0.png", noise(0))
    with pytest.raises(SanpError, match=r"at least two classes$"):
        check_folder(tmp_path / "one")


@pytest.mark.parametrize("content", [b"", b"no picture", b"GIF89a"])
def test_a_file_that_is_no_image_is_named_without_pillow_s_objects(tmp_path: Path, content: bytes) -> None:
    root = folder_of(tmp_path / "x", splits=(".",))
    (root / "cat" / "0.png").write_bytes(content)
    (why,) = check_folder(root).broken
    assert why.endswith("cat/0.png cannot be read as an image (no PNG, JPEG or WebP): replace or remove it")

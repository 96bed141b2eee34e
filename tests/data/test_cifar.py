import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from sanp.core.errors import SanpError
from sanp.data import data_folder, load
from sanp.data.cifar import CIFAR10, PIXELS, Cifar, read_cifar, write_batch, write_meta
from tests.data.conftest import MakeCifar


def test_the_folder_in_the_official_layout_is_used_as_it_is(tmp_path: Path, make_cifar: MakeCifar, kind: Cifar) -> None:
    folder = make_cifar(tmp_path, kind)
    found = load(kind.name, root=tmp_path)
    first = pickle.loads((folder / kind.train[0]).read_bytes())
    assert len(found.train) == 2 * kind.num_classes * len(kind.train)
    assert len(found.test) == 2 * kind.num_classes
    assert (found.num_classes, found.channels, found.image_size) == (kind.num_classes, 3, 32)
    assert found.classes[3] == "class 3"
    # A row is 1024 red values, then green, then blue, each by rows of 32 (the authors' page).
    (image,) = found.train.read([torch.tensor([1])])
    assert int(image[0, 2, 5, 7]) == int(first["data"][1, 2 * 1024 + 5 * 32 + 7])
    assert found.train.labels[: kind.num_classes].tolist() == list(range(kind.num_classes))
    assert found.augment.flip


def test_another_size_than_32_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SanpError, match="cifar10 are 32x32"):
        load("cifar10", root=tmp_path, size=64)


@pytest.mark.parametrize(
    ("rows", "labels", "says"),
    [
        (20, [0] * 19, "20 images but 19 labels"),
        (20, [0] * 19 + [10], "outside 0 to 9"),
        (20, [0] * 19 + [-1], "outside 0 to 9"),
        (20, [0] * 19 + [True], "no list of numbers"),
        (20, ["0"] * 20, "no list of numbers"),
        (0, [], "empty|no array"),
    ],
)
def test_a_file_with_wrong_labels_is_refused(
    tmp_path: Path, make_cifar: MakeCifar, rows: int, labels: list[int], says: str
) -> None:
    folder = make_cifar(tmp_path, CIFAR10)
    write_batch(folder / CIFAR10.test, CIFAR10, np.zeros((rows, PIXELS), dtype=np.uint8), labels)
    with pytest.raises(SanpError, match=says):
        read_cifar(CIFAR10, tmp_path)


@pytest.mark.parametrize("content", [{}, {"data": np.zeros((2, 3071), np.uint8), "labels": [0, 1]}, {"data": b"x"}])
def test_a_file_without_the_images_is_refused(tmp_path: Path, make_cifar: MakeCifar, content: object) -> None:
    folder = make_cifar(tmp_path, CIFAR10)
    (folder / "data_batch_3").write_bytes(pickle.dumps(content))
    with pytest.raises(SanpError, match=r"data_batch_3 is not a cifar-10-batches-py file: 'data' is no array"):
        read_cifar(CIFAR10, tmp_path)


def test_a_file_of_names_with_a_wrong_count_is_refused(tmp_path: Path, make_cifar: MakeCifar) -> None:
    folder = make_cifar(tmp_path, CIFAR10)
    write_meta(folder / CIFAR10.meta, CIFAR10, ["cat"])
    with pytest.raises(SanpError, match="1 names for 10 classes"):
        read_cifar(CIFAR10, tmp_path)


@pytest.mark.skipif(not CIFAR10.is_in(data_folder()), reason="CIFAR-10 is not in the data folder")
def test_the_real_cifar_10_has_its_known_counts_means_and_deviations() -> None:
    found = load("cifar10")
    assert found.train.labels.bincount().tolist() == [5000] * 10
    assert found.test.labels.bincount().tolist() == [1000] * 10
    assert found.train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]  # the official order
    assert found.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=5e-5)
    assert found.std == pytest.approx((0.2470, 0.2435, 0.2616), abs=5e-5)

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from sanp.data.cifar import CIFAR10, CIFAR100, PIXELS, Cifar, write_batch, write_meta

MakeCifar = Callable[[Path, Cifar], Path]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def make_cifar() -> MakeCifar:
    """A folder in the official layout with twice as many random images a file as there are classes."""

    def make(root: Path, kind: Cifar) -> Path:
        folder = root / kind.folder
        folder.mkdir(parents=True)
        rng = np.random.default_rng(0)
        labels = [number % kind.num_classes for number in range(2 * kind.num_classes)]
        for name in (*kind.train, kind.test):
            images = rng.integers(0, 256, (len(labels), PIXELS), dtype=np.uint8)
            write_batch(folder / name, kind, images, labels)
        write_meta(folder / kind.meta, kind, [f"class {number}" for number in range(kind.num_classes)])
        return folder

    return make


@pytest.fixture(params=[CIFAR10, CIFAR100], ids=["cifar10", "cifar100"])
def kind(request: pytest.FixtureRequest) -> Cifar:
    chosen: Cifar = request.param
    return chosen

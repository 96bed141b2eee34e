import dataclasses

import pytest
import torch

from sanp.core.errors import SanpError
from sanp.data import Augment, Dataset, Split
from sanp.data.dataset import first_after_shuffle, statistics

IMAGES = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 0, 1])


def test_a_data_set_refuses_a_label_beyond_its_classes_and_splits_of_different_shapes() -> None:
    split = Split(IMAGES, LABELS)
    good = Dataset(
        name="tiny", train=split, test=split, classes=("a", "b"), mean=(0.5,) * 3, std=(0.5,) * 3, augment=Augment()
    )
    assert (good.channels, good.image_size, good.num_classes) == (3, 8, 2)
    with pytest.raises(SanpError, match="a label is 1, but there are 1 classes"):
        dataclasses.replace(good, classes=("a",))
    with pytest.raises(SanpError, match="same shape"):
        dataclasses.replace(good, test=Split(IMAGES[..., :4], LABELS))


def test_the_statistics_are_those_of_the_images_in_0_to_1() -> None:
    images = torch.zeros(2, 3, 1, 2, dtype=torch.uint8)
    images[:, 0] = torch.tensor([0, 255], dtype=torch.uint8)  # mean 1/2, deviation 1/2
    images[1, 1] = 51  # 0 and 51: mean 25.5/255, deviation 25.5/255
    mean, std = statistics(Split(images, torch.tensor([0, 1])))
    assert mean == pytest.approx((0.5, 0.1, 0.0))
    assert std == pytest.approx((0.5, 0.1, 1 / 255))  # the last channel is constant: not divided by 0


def test_a_limit_keeps_the_same_images_each_time_and_a_prefix_of_a_larger_limit() -> None:
    split = Split(torch.arange(64).view(64, 1, 1, 1).to(torch.uint8), torch.arange(64))
    ten, twenty = (first_after_shuffle(split, limit).labels.tolist() for limit in (10, 20))
    assert len(set(ten)) == 10
    assert twenty[:10] == ten != list(range(10))
    assert len(first_after_shuffle(split, 100)) == 64
    for limit in (0, -1, True, 1.5):
        with pytest.raises(SanpError, match="limit is"):
            first_after_shuffle(split, limit)  # type: ignore[arg-type]

import pytest
import torch

from sanp.core.errors import SanpError
from sanp.data import Augment, Dataset, Split, hold_out
from sanp.data.held_out import split_off


def numbered(labels: list[int]) -> Split:
    """Images of one pixel whose value is their number."""
    return Split(torch.arange(len(labels)).view(-1, 1, 1, 1).to(torch.uint8), torch.tensor(labels))


def numbers(split: object) -> list[int]:
    assert isinstance(split, Split)
    return split.images.flatten().tolist()


def test_every_class_loses_its_share_and_no_image_is_in_both() -> None:
    examples = numbered([0] * 100 + [1] * 60 + [2] * 40)
    rest, held_out = split_off(examples, 20)
    assert held_out.labels.bincount().tolist() == [10, 6, 4]  # a tenth of each
    assert sorted(numbers(rest) + numbers(held_out)) == list(range(200))
    assert numbers(held_out)[:10] != list(range(0, 100, 10))  # drawn, not every tenth


def test_the_same_images_are_held_out_every_time_and_a_share_is_a_number() -> None:
    examples = numbered([0, 1, 2, 3] * 25)
    torch.manual_seed(1)
    first = numbers(split_off(examples, 20)[1])
    torch.manual_seed(2)
    assert numbers(split_off(examples, 0.2)[1]) == first


@pytest.mark.parametrize("amount", [0, 1, -5, 1.5, 0.0, float("nan"), True, "5"])
def test_what_is_no_amount_is_refused(amount: object) -> None:
    with pytest.raises(SanpError, match="give a number of images"):
        split_off(numbered([0, 1] * 10), amount)  # type: ignore[arg-type]


def test_too_many_and_too_few_are_refused() -> None:
    with pytest.raises(SanpError, match="holds out 19 of 20 training images: hold out at least 2 and leave 2"):
        split_off(numbered([0, 1] * 10), 19)
    with pytest.raises(SanpError, match="holds out 0 of 20"):
        split_off(numbered([0, 1] * 10), 0.01)


def test_a_data_set_keeps_its_test_images() -> None:
    data = Dataset(
        name="numbers",
        train=numbered([0, 1] * 50),
        test=numbered([0, 1]),
        classes=("even", "odd"),
        mean=(0.5,),
        std=(0.5,),
        augment=Augment(),
    )
    held = hold_out(data, 10)
    assert (len(held.train), len(held.test)) == (90, 2)
    assert held.held_out is not None and held.held_out.labels.bincount().tolist() == [5, 5]

import pytest
import torch
from torch import Tensor

from sanp.core.errors import SanpError
from sanp.data import Augment, Batches, Split

EVERYTHING = Augment(flip=True, translate=2, cutout=3)


def numbered(count: int, size: int = 8) -> Split:
    """Random images whose label is their position."""
    images = torch.randint(256, (count, 3, size, size), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return Split(images, torch.arange(count))


def batches(split: Split, batch_size: int = 8, **options: object) -> Batches:
    return Batches(split, batch_size, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), **options)  # type: ignore[arg-type]


def equal(ours: list[tuple[Tensor, Tensor]], theirs: list[tuple[Tensor, Tensor]]) -> bool:
    return len(ours) == len(theirs) and all(
        torch.equal(x, x2) and torch.equal(y, y2) for (x, y), (x2, y2) in zip(ours, theirs, strict=True)
    )


def test_images_are_normalised_by_channel_and_come_in_order_unless_shuffled() -> None:
    split = numbered(20)
    got = list(batches(split))
    assert [len(y) for _, y in got] == [8, 8, 4]
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1), torch.tensor([0.2, 0.25, 0.3]).view(3, 1, 1)
    assert torch.allclose(torch.cat([x for x, _ in got]), (split.images / 255 - mean) / std, atol=1e-6)
    assert torch.cat([y for _, y in got]).tolist() == list(range(20))
    assert len(batches(split)) == 3
    assert [len(y) for _, y in batches(split, drop_last=True)] == [8, 8]


def test_each_epoch_gives_every_image_once_in_an_order_of_its_own() -> None:
    given = batches(numbered(20), shuffle=True)
    orders = [torch.cat([y for _, y in given]).tolist() for _ in range(3)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_an_epoch_follows_from_the_seed_and_its_number_alone() -> None:
    given = batches(numbered(20), shuffle=True, augment=EVERYTHING, seed=3)
    epochs = [list(given) for _ in range(3)]
    again = batches(numbered(20), shuffle=True, augment=EVERYTHING, seed=3)
    again.set_epoch(2)
    assert equal(list(again), epochs[2])
    again.set_epoch(0)
    assert equal(list(again), epochs[0])
    assert equal(list(again), epochs[1])  # goes on by itself
    assert not equal(epochs[0], epochs[1])
    other = batches(numbered(20), shuffle=True, augment=EVERYTHING, seed=4)
    assert not equal(list(other), epochs[0])
    other.set_epoch(2)
    assert not equal(list(other), list(again))


def test_starting_in_the_middle_gives_what_the_whole_epoch_would_have_given() -> None:
    given = batches(numbered(30), shuffle=True, augment=EVERYTHING)
    given.set_epoch(5)
    whole = list(given)
    for first in range(5):
        given.set_epoch(5)
        assert equal(list(given.starting_at(first)), whole[first:])
    for wrong in (-1, 5, True):
        with pytest.raises(SanpError, match="start at"):
            given.starting_at(wrong)


def test_a_part_is_what_a_rank_would_have_been_given_and_the_whole_stays_whole() -> None:
    split = numbered(23)
    whole = batches(split, shuffle=True, augment=EVERYTHING, seed=5)
    parts = [whole.part(rank, 3) for rank in range(3)]
    ranks = [batches(split, shuffle=True, augment=EVERYTHING, seed=5, rank=rank, world=3) for rank in range(3)]
    for part, rank in zip(parts, ranks, strict=True):
        assert equal(list(part), list(rank))
    together = [tuple(map(torch.cat, zip(*every, strict=True))) for every in zip(*parts, strict=True)]  # epoch 1
    next(iter(whole))  # epoch 0, which no part has taken from it
    assert equal(together, list(whole))  # type: ignore[arg-type]
    with pytest.raises(SanpError, match="rank is 3 of 3"):
        whole.part(3, 3)
    with pytest.raises(SanpError, match="at least 9"):
        whole.part(0, 9)


@pytest.mark.parametrize("world", [2, 3])
def test_the_ranks_together_give_the_batches_of_one_process(world: int) -> None:
    split = numbered(30)
    whole = list(batches(split, shuffle=True, augment=EVERYTHING))
    parts = [list(batches(split, shuffle=True, augment=EVERYTHING, rank=rank, world=world)) for rank in range(world)]
    joined = [(torch.cat([x for x, _ in same]), torch.cat([y for _, y in same])) for same in zip(*parts, strict=True)]
    assert equal(joined, whole)


def test_the_changes_of_an_image_do_not_depend_on_the_batch_size() -> None:
    split = numbered(24)
    small, large = (torch.cat([x for x, _ in batches(split, size, augment=EVERYTHING)]) for size in (5, 24))
    assert torch.equal(small, large)


def test_the_alternating_flip_mirrors_each_image_in_every_second_epoch() -> None:
    split = numbered(64)
    given = batches(split, 64, augment=Augment(flip=True, flip_alternates=True))
    plain = next(iter(batches(split, 64)))[0]
    epochs = [next(iter(given))[0] for _ in range(4)]
    flipped = torch.stack([(x != plain).flatten(1).any(1) for x in epochs])  # (4, 64)
    for x, which in zip(epochs, flipped, strict=True):
        assert torch.equal(x[which], plain[which].flip(3))
    assert torch.equal(flipped[0], ~flipped[1])
    assert torch.equal(flipped[0], flipped[2])
    assert torch.equal(flipped[1], flipped[3])
    assert 16 < int(flipped[0].sum()) < 48


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.0}, "batch_size is 2.0"),
        ({"batch_size": 21, "drop_last": True}, "leaves nothing"),
        ({"batch_size": 3, "world": 4}, "at least 4"),
        ({"rank": 2, "world": 2}, "rank is 2 of 2"),
        ({"world": 0}, "of 0"),
        ({"seed": -1}, "seed is -1"),
        ({"mean": (0.5,)}, "1 means and 3 stds for 3 channels"),
        ({"std": (0.0, 1.0, 1.0)}, "stds above 0"),
        ({"mean": (float("nan"), 0.0, 0.0)}, "finite"),
        ({"augment": Augment(translate=8)}, "translate is 8"),
    ],
)
def test_impossible_batches_are_refused(options: dict[str, object], says: str) -> None:
    given = {"batch_size": 8, "mean": (0.5,) * 3, "std": (0.5,) * 3, **options}
    with pytest.raises(SanpError, match=says):
        Batches(numbered(20), **given)  # type: ignore[arg-type]


def test_an_epoch_that_is_no_whole_number_is_refused() -> None:
    for wrong in (-1, 0.5, True):
        with pytest.raises(SanpError, match="epoch is"):
            batches(numbered(20)).set_epoch(wrong)  # type: ignore[arg-type]

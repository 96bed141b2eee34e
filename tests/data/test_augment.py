import pytest
import torch
from torch.nn.functional import pad

from sanp.core.errors import SanpError
from sanp.data import Augment
from sanp.data.augment import Changes, cut_out, draw_changes, shift_and_flip


def changes_of(augment: Augment, count: int, size: tuple[int, int]) -> Changes:
    coins = torch.zeros(count, dtype=torch.int64)
    return draw_changes(augment, count, size, coins=coins, epoch=0, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [(32, 32), (5, 9)])
def test_moving_a_batch_equals_padding_cropping_and_mirroring_each_image(size: tuple[int, int]) -> None:
    height, width = size
    images = torch.randint(256, (64, 3, *size), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    changes = changes_of(Augment(flip=True, translate=4), 64, size)
    moved = shift_and_flip(images, changes)
    for number in range(64):
        padded = pad(images[number : number + 1].float(), (4, 4, 4, 4), mode="reflect")[0]
        down, right = (4 + changes.shift[number]).tolist()
        expected = padded[:, down : down + height, right : right + width]
        if changes.flipped[number]:
            expected = expected.flip(2)
        assert torch.equal(moved[number].float(), expected)
    assert moved.dtype == torch.uint8
    assert {tuple(shift) for shift in changes.shift.tolist()} > {(0, 0)}


def test_the_changes_drawn_reach_their_bounds_and_no_further() -> None:
    changes = changes_of(Augment(flip=True, translate=2), 4000, (32, 16))
    assert changes.shift.unique().tolist() == [-2, -1, 0, 1, 2]
    assert changes.hole.min(0).values.tolist() == [0, 0]
    assert changes.hole.max(0).values.tolist() == [31, 15]
    assert 1800 < int(changes.flipped.sum()) < 2200  # 2000 ± 32 expected
    still = changes_of(Augment(), 100, (32, 32))
    assert not still.flipped.any()
    assert not still.shift.any()


def test_a_cut_sets_a_square_to_zero_and_is_clipped_at_the_border() -> None:
    images = torch.ones(2, 3, 6, 6)
    holes = torch.tensor([[3, 3], [0, 5]])
    cut_out(images, Changes(torch.zeros(2, dtype=torch.bool), torch.zeros(2, 2, dtype=torch.int64), holes), 4)
    inside = torch.ones(6, 6)
    inside[1:5, 1:5] = 0  # rows and columns 3 - 2 to 3 + 1
    corner = torch.ones(6, 6)
    corner[0:2, 3:6] = 0  # rows -2 to 1, columns 3 to 6
    assert torch.equal(images[0], inside.expand(3, 6, 6))
    assert torch.equal(images[1], corner.expand(3, 6, 6))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"translate": -1}, "translate is -1"),
        ({"cutout": 2.5}, "cutout is 2.5"),
        ({"flip": 1}, "flip is 1"),
        ({"flip_alternates": True}, "without flip"),
    ],
)
def test_an_impossible_augment_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(SanpError, match=says):
        Augment(**fields)  # type: ignore[arg-type]


def test_a_shift_or_a_square_larger_than_the_image_is_refused() -> None:
    Augment(translate=7, cutout=8).check_fits(8, 9)
    with pytest.raises(SanpError, match="at most 7"):
        Augment(translate=8).check_fits(8, 9)
    with pytest.raises(SanpError, match="at most 8"):
        Augment(cutout=9).check_fits(9, 8)


def test_a_black_border_is_what_a_crop_of_a_padded_picture_has() -> None:
    images = torch.arange(1, 17, dtype=torch.uint8).reshape(1, 1, 4, 4)
    changes = Changes(torch.tensor([False]), torch.tensor([[1, -2]]), torch.zeros(1, 2, dtype=torch.int64))
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    assert torch.equal(shift_and_flip(images, changes, black=True), padded[:, :, 3:7, 0:4])
    mirrored = Changes(torch.tensor([True]), changes.shift, changes.hole)
    assert torch.equal(shift_and_flip(images, mirrored, black=True), padded[:, :, 3:7, 0:4].flip(3))


def test_changes_with_a_cutout_shift_by_an_eighth_and_cut_a_quarter_of_the_side() -> None:
    own = Augment(flip=True, flip_alternates=True, translate=2)
    assert own.with_cutout(32) == Augment(flip=True, flip_alternates=True, translate=4, cutout=8)
    assert Augment(translate=1).with_cutout(16) == Augment(translate=2, cutout=4)

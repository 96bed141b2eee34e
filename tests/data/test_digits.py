import sys

import pytest
import torch

from sanp.core.errors import SanpError
from sanp.data import load


def test_the_digits_are_1437_and_360_of_every_class_alike_and_not_mirrored() -> None:
    digits = load("digits")
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    # All: 178 182 177 183 181 182 181 179 174 180 (UCI's table); a fifth of each, to within one image.
    train, test = digits.train.labels.bincount(), digits.test.labels.bincount()
    whole = torch.tensor([178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    assert torch.equal(train + test, whole)
    assert bool(((test - whole / 5).abs() < 1).all())
    assert digits.train.shape == (3, 32, 32)
    assert digits.classes == tuple("0123456789")
    assert not digits.augment.flip
    (images,) = digits.train.read([torch.arange(100)])
    assert torch.equal(images[:, 0], images[:, 2])
    assert int(images.max()) == 255


def test_digits_at_their_own_size_are_the_originals_scaled_to_255() -> None:
    from sklearn.datasets import load_digits

    found = load("digits", size=8)
    (test,) = found.test.read([torch.arange(360)])
    first_zero = load_digits().images[0]  # class 0 comes first, so its first image is the first test image
    assert torch.equal(test[0, 0].double(), (torch.from_numpy(first_zero) * 255 / 16).round())


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SanpError, match=r"pip install 'sanp\[digits\]'"):
        load("digits")

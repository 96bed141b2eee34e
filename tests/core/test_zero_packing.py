"""Rows and columns of zeros are left out of a file and come back."""

import pytest
import torch
from torch import Tensor

from sanp.core.errors import SanpError
from sanp.core.zero_packing import checked_packings, packed, packing_of, unpack_into, unpacked_shape


def with_zeros() -> Tensor:
    """(6, 4, 2): rows 1 and 4 and column 2 are zero, and one kernel besides."""
    tensor = torch.arange(1.0, 49.0).reshape(6, 4, 2)
    tensor[[1, 4]] = 0
    tensor[:, 2] = 0
    tensor[0, 0] = 0
    return tensor


def test_what_is_left_out_comes_back_as_zeros() -> None:
    tensor = with_zeros()
    packing = packing_of(tensor)
    assert packing is not None
    small = packed(tensor, packing)
    assert small.shape == (4, 3, 2)
    again = checked_packings({"a": packing.as_header()})["a"]
    assert packing.as_header() == {"rows": "101101", "columns": "1101"}
    whole = torch.full_like(tensor, 7.0)
    unpack_into(whole, small, again)
    assert torch.equal(whole, tensor)


@pytest.mark.parametrize("shape", [(5,), (0, 3), ()])
def test_vectors_and_empty_tensors_stay_whole(shape: tuple[int, ...]) -> None:
    assert packing_of(torch.zeros(shape)) is None


def test_a_tensor_with_few_zeros_stays_whole() -> None:
    tensor = torch.ones(16, 10)
    tensor[0] = 0  # a sixteenth
    assert packing_of(tensor) is None
    tensor[1] = 0  # an eighth
    assert packing_of(tensor) is not None


def test_a_tensor_of_zeros_is_packed_to_nothing() -> None:
    packing = packing_of(torch.zeros(3, 4))
    assert packing is not None
    small = packed(torch.zeros(3, 4), packing)
    assert small.shape == (0, 0) and unpacked_shape(small, packing) == (3, 4)
    whole = torch.ones(3, 4)
    unpack_into(whole, small, packing)
    assert not whole.any()


def test_a_tensor_of_another_size_than_its_packing_says_does_not_fit() -> None:
    tensor = with_zeros()
    packing = packing_of(tensor)
    assert packing is not None
    assert unpacked_shape(torch.zeros(3, 3, 2), packing) is None
    assert unpacked_shape(torch.zeros(4), packing) is None


@pytest.mark.parametrize("given", [[], "x", {"a": 1}, {"a": {"rows": "10"}}, {"a": {"rows": "12", "columns": "1"}}])
def test_a_damaged_header_is_refused(given: object) -> None:
    with pytest.raises(SanpError, match="wanted are rows and columns"):
        checked_packings(given)

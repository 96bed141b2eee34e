import pytest
import torch

from sanp.core.errors import SanpError
from sanp.data import Split

IMAGES = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (IMAGES.float(), LABELS, "float32"),
        (IMAGES[0], LABELS, r"\(3, 8, 8\)"),
        (IMAGES.numpy(), LABELS, "ndarray"),
        (torch.zeros(4, 2, 8, 8, dtype=torch.uint8), LABELS, "1 or 3 channels"),
        (IMAGES, LABELS.int(), "int32"),
        (IMAGES, LABELS[:3], "4 images but 3 labels"),
        (IMAGES[:0], LABELS[:0], "empty"),
        (IMAGES, torch.tensor([0, 1, -1, 1]), "a label is -1"),
        (IMAGES, torch.zeros(4, dtype=torch.int64), "all 4 images are of class 0"),
    ],
)
def test_a_split_refuses_what_cannot_be_trained_on(images: torch.Tensor, labels: torch.Tensor, says: str) -> None:
    with pytest.raises(SanpError, match=says):
        Split(images, labels)

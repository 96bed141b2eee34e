import pytest
import torch
from torch import nn

from sanp.core.errors import SanpError
from sanp.training.config import FitConfig
from sanp.training.image_size import growing, share_at, side_of
from sanp.training.task import Task
from sanp.training.three_stages import pretrain_stage


def test_the_share_is_the_first_then_a_line_then_one() -> None:
    assert [share_at(progress, 0.5) for progress in (0.0, 0.4, 0.55, 0.7, 1.0)] == pytest.approx([0.5, 0.5, 0.75, 1, 1])


def test_a_side_is_a_multiple_of_four_and_never_larger_than_the_images() -> None:
    assert [side_of(32, share) for share in (0.5, 0.6, 0.95, 1.0)] == [16, 20, 32, 32]
    assert side_of(28, 0.01) == 4
    assert side_of(31, 0.99) == 31  # 32 would be larger than the image
    assert side_of(31, 1.0) == 31
    assert side_of(3, 0.5) == 3


def test_resized_images_keep_their_mean_and_whole_ones_are_not_touched() -> None:
    images = torch.rand(2, 3, 32, 32)
    small = growing(0.5)(images, 0.0)
    assert small.shape == (2, 3, 16, 16)
    torch.testing.assert_close(small.mean((2, 3)), images.mean((2, 3)), atol=0.02, rtol=0)
    assert growing(0.5)(images, 0.9) is images


def test_pretraining_sees_small_images_first_and_whole_ones_last() -> None:
    seen = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.shape[-1])
            y: torch.Tensor = self.linear(x.mean((2, 3)))
            return y

    config = FitConfig(pretrain_epochs=10, pretrain_size=0.5, precision="fp32")
    task = Task(loader=[(torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 0, 1]))], budget="100%", config=config)
    for _ in pretrain_stage(Net(), task).run():
        pass
    assert seen == [16, 16, 16, 16, 16, 20, 28, 32, 32, 32]


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5])
def test_a_share_of_the_side_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(SanpError, match="pretrain_size"):
        FitConfig(pretrain_size=share)

"""A split that an epoch goes through several times, so that few images make enough steps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from sanp.data.split import Examples


@dataclass(frozen=True, eq=False)
class Repeated:
    """The images of ``split``, ``times`` times; each time an image has an augmentation of its own."""

    split: Examples
    times: int

    @property
    def labels(self) -> Tensor:
        """The class of every image, int64 (N,)."""
        return self.split.labels.repeat(self.times)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return self.split.shape

    def __len__(self) -> int:
        return self.times * len(self.split)

    def read(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """For every tensor of positions in ``batches``, those images as uint8 (B, C, H, W)."""
        return self.split.read(positions % len(self.split) for positions in batches)

    def take(self, positions: Tensor) -> Examples:
        """The split of these positions alone."""
        return self.split.take(positions % len(self.split))

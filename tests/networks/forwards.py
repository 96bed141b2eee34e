"""What strangers' forwards do with the channels of a convolution, one function each."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks.parts import Net, conv


def chain(*between: nn.Module) -> nn.Module:
    """A convolution, what is to be seen through, and a convolution."""
    return nn.Sequential(conv(3, 6), *between, conv(6, 4))


def functional_norm(n: Net, x: Tensor) -> Tensor:
    y = F.batch_norm(n.a(x), n.norm.running_mean, n.norm.running_var, n.norm.weight, n.norm.bias, n.training)
    return n.b(F.relu(y))  # type: ignore[no-any-return]


def shift(n: Net, x: Tensor) -> Tensor:
    """Writes into memory of its own, piece by piece."""
    y, out = n.a(x), torch.zeros(len(x), 8, *x.shape[2:], dtype=x.dtype)
    out[:, :3, 1:] = y[:, :3, :-1]
    out[:, 3:6] = y[:, 3:]
    return n.b(out)  # type: ignore[no-any-return]


def in_place(n: Net, x: Tensor) -> Tensor:
    """Changes part of a tensor through a view, and reads the whole afterwards."""
    y = n.a(x)
    y[:, :2] += n.c(x)[:, :2]
    y[:, 2].mul_(0)
    return n.b(F.relu_(y))  # type: ignore[no-any-return]


def frames(n: Net, x: Tensor) -> Tensor:
    """A video: frames in the batch, then pooled."""
    y = n.b(n.a(x.flatten(0, 1)))
    return n.fc(y.mean((2, 3)).unflatten(0, x.shape[:2]).mean(1))  # type: ignore[no-any-return]


def folded_later(n: Net, x: Tensor) -> Tensor:
    """Two crops of each sample go into the batch half way."""
    y = n.a(x)
    return n.b(torch.cat((y[..., :4], y[..., 4:])))  # type: ignore[no-any-return]


def mixed_batch(n: Net, x: Tensor) -> Tensor:
    """The neighbour's features are added, which are zero where the neighbour's gates are closed."""
    y = n.a(x)
    return n.b(y.flip(0) * 0.5) + n.c(y + y.roll(1, 0)) + n.d(y.mean(0, keepdim=True).expand_as(y))  # type: ignore[no-any-return]


def attention(n: Net, x: Tensor) -> Tensor:
    """Positions attend to positions: a pruned channel of the values stays zero."""
    q, k, v = n.q(x).flatten(2), n.k(x).flatten(2), n.v(x).flatten(2)
    weights = torch.bmm(q.transpose(1, 2), k).softmax(-1)
    return n.out(torch.bmm(v, weights).unflatten(2, x.shape[2:]))  # type: ignore[no-any-return]


def shuffled(n: Net, x: Tensor) -> Tensor:
    left, right = n.a(x).chunk(2, 1)
    y = torch.cat((left, n.b(right)), 1).unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)
    return n.c(y[:, torch.tensor([5, 1, 0, 7])])  # type: ignore[no-any-return]


def excited(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.b(y * torch.sigmoid(n.up(F.relu(n.down(y.mean((2, 3), keepdim=True))))))  # type: ignore[no-any-return]


def stacked(n: Net, x: Tensor) -> Tensor:
    """Branches averaged in a dimension before the batch."""
    return n.c(torch.stack((n.a(x), n.b(x))).mean(0))  # type: ignore[no-any-return]


def in_a_list(n: Net, x: Tensor) -> Tensor:
    for layer in n.order:
        x = F.relu(layer(x))
    return x


def listed() -> nn.Module:
    net = Net(in_a_list, a=conv(3, 4), b=conv(4, 4))
    net.order = [net.a, net.b]
    return net


def twice(n: Net, x: Tensor) -> Tensor:
    return n.b(F.relu(n.norm(n.a(F.relu(n.norm(n.a(x)))))))  # type: ignore[no-any-return]


def twice_with_two_norms(n: Net, x: Tensor) -> Tensor:
    return n.b(F.relu(n.second(n.a(F.relu(n.first(n.a(x)))))))  # type: ignore[no-any-return]


def depthwise_twice(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.c(n.b(y) + n.b(F.relu(n.b(y))))  # type: ignore[no-any-return]

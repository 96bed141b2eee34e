"""Which channels static pruning takes out: by one threshold over the whole network, or the least of every layer."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sanp.methods.cutting.groups import FIXED, Coupling

Scores = Mapping[int, float]
"""channel (root identity) to how much it matters"""


def owned(coupling: Coupling, *, added: bool = True) -> dict[str, Tensor]:
    """The channels that may go, by the first convolution that makes them: path to root identities.

    ``added=False`` leaves out those that an addition has tied to another layer's.
    """
    taken = {coupling.root(identity) for identity in coupling.added} if not added else set()
    taken.add(FIXED)
    found = {}
    for path, member in coupling.convs.items():
        mine = [root for root in dict.fromkeys(coupling.roots(member.outputs).tolist()) if root not in taken]
        taken.update(mine)
        if mine:
            found[path] = torch.tensor(mine)
    return found


def below(coupling: Coupling, scores: Scores, threshold: float) -> set[int]:
    """All channels of a score up to the threshold, but never a whole layer: its best channel stays."""
    gone = {root for root, score in scores.items() if score <= threshold}
    return with_survivors(coupling, gone, scores)


def ranked(layers: Mapping[str, Tensor], scores: Scores) -> dict[int, float]:
    """The scores as ranks, which a threshold tells apart even among equals: of those, every layer gives its share."""
    place = {int(root): number / len(roots) for roots in layers.values() for number, root in enumerate(roots)}
    order = sorted(scores, key=lambda root: (scores[root], place[root]))
    return {root: float(rank) for rank, root in enumerate(order)}


def least_of_each_layer(coupling: Coupling, layers: Mapping[str, Tensor], scores: Scores, rate: float) -> set[int]:
    """The ``floor(rate C)`` channels of least score of every layer, the first of equals first."""
    gone: set[int] = set()
    for path, roots in layers.items():
        count = int(rate * len(coupling.members[path].outputs) + 1e-9)
        order = sorted(roots.tolist(), key=lambda root: scores[root])
        gone.update(order[:count])
    return with_survivors(coupling, gone, scores)


def with_survivors(coupling: Coupling, gone: set[int], scores: Scores) -> set[int]:
    """Gives every convolution that would lose all its outputs its best one back."""
    gone = set(gone)
    for member in coupling.convs.values():
        roots = coupling.roots(member.outputs).tolist()
        if all(root in gone for root in roots):
            gone.discard(max(dict.fromkeys(roots), key=lambda root: scores[root]))
    return gone


def channel_sums(coupling: Coupling, path: str, values: Tensor) -> dict[int, float]:
    """Values of a layer's outputs (C_out,) added up by channel."""
    roots = coupling.roots(coupling.members[path].outputs)
    sums = torch.zeros(int(roots.max()) + 1, dtype=torch.float64)
    sums.index_add_(0, roots, values.detach().double().cpu())
    return {root: float(sums[root]) for root in dict.fromkeys(roots.tolist())}

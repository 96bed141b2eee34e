import pytest
import torch
from torch import nn

from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.ranking import removable_groups
from sanp.methods.depgraph import DepGraph, group_norms
from sanp.training.config import FitConfig
from sanp.training.task import Task
from sanp.training.watching import run_stages
from tests.methods.conftest import Residual


def waves(net: nn.Module) -> nn.Module:
    """The network with parameters that are the same everywhere: sin(0.05 n + k) for the n-th entry of the k-th."""
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            steps = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_(torch.sin(0.05 * steps + number).reshape(parameter.shape))
    return net


def flattened() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def scores_of(net: nn.Module, example: torch.Tensor) -> dict[str, list[float]]:
    channel_groups = find_groups(net, example)
    layers = removable_groups(channel_groups)
    scores = group_norms(net, channel_groups, layers)
    return {path: [scores[int(group)] for group in groups] for path, groups in layers.items()}


TORCH_PRUNING: dict[str, dict[str, list[float]]] = {
    "residual": {
        "stem": [0.86149, 1.28547, 0.85304],
        "inner": [0.85388, 1.41699, 0.72914],
        "down": [0.57045, 1.63008, 0.56338, 1.41438, 0.90142, 0.92028],
    },
    "flattened": {"0": [0.77446, 1.18629, 1.03924], "2": [0.85329, 1.20075, 1.24535, 0.70061]},
}
"""torch-pruning 1.6.1, GroupMagnitudeImportance(p=2) of each of its groups, by the first convolution of the group"""


def test_a_score_is_the_sum_of_squares_of_all_that_belongs_to_the_channel() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 1, 1), nn.Flatten())
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([1.0, 2.0]).view(2, 1, 1, 1))  # type: ignore[operator]
        net[1].weight.copy_(torch.tensor([3.0, 1.0]))  # type: ignore[operator]
        net[3].weight.copy_(torch.tensor([2.0, 4.0]).view(1, 2, 1, 1))  # type: ignore[operator]
    # 1 + 9 + 4 = 14 and 4 + 1 + 16 = 21; their mean is 17.5.
    assert scores_of(net, torch.ones(1, 1, 1, 1)) == {"0": pytest.approx([0.8, 1.2])}


@pytest.mark.parametrize("name", ["residual", "flattened"])
def test_scores_are_those_of_torch_pruning(name: str) -> None:
    net, size = (Residual(width=3), (1, 3, 8, 8)) if name == "residual" else (flattened(), (1, 2, 6, 6))
    found = scores_of(waves(net), torch.zeros(size))
    assert found.keys() == TORCH_PRUNING[name].keys()
    for path, scores in TORCH_PRUNING[name].items():
        assert found[path] == pytest.approx(scores, abs=1e-5)


def test_one_threshold_serves_all_layers() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1), nn.Flatten())
    with torch.no_grad():
        for number, sizes in ((0, [1.0, 1.0, 1.0, 1.0]), (1, [0.1, 3.0, 0.1, 3.0])):
            net[number].weight.copy_(torch.tensor(sizes).view(4, 1, 1, 1).expand_as(net[number].weight))  # type: ignore[operator, arg-type]
            net[number].bias.zero_()  # type: ignore[operator, union-attr]
        net[2].weight.fill_(0.1)  # type: ignore[operator, union-attr]
    loader = [(torch.ones(1, 1, 1, 1), torch.zeros(1, dtype=torch.long))]
    still = FitConfig(warmup_epochs=0, joint_epochs=0, norm_batches=0)
    # FLOPs (1 + 1) 4 + (4 + 1) 4 + (4 + 1) 2 = 38. Without the two small filters 8 + 10 + 6 = 24, 63 %.
    pruned = run_stages(DepGraph().stages(net, Task(loader=loader, budget="63%", config=still)))
    weights = [pruned.get_submodule(f"net.{number}").weight for number in (0, 1)]
    assert [len(weight) for weight in weights] == [4, 2]  # type: ignore[arg-type]
    assert weights[1].flatten().tolist() == [3.0] * 8  # type: ignore[operator]

"""What must be true of every method: it meets the budget, reports honestly, is saved and loaded, and can be resumed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import sanp
from sanp.core.errors import SanpError
from sanp.experiments.table import display_name
from sanp.gating.network import GatedNetwork
from sanp.methods import METHODS, config_of, method_named
from sanp.methods.cutting.cut import CutNetwork
from sanp.training.watching import run_stages
from tests.conftest import SmallNet, coloured_squares
from tests.methods.conftest import QUICK, Residual, task

PRUNING = sorted(set(METHODS) - {"dense", "dense_longer"})
CUTTING = ("l1", "ns", "fcp", "autopruner", "depgraph", "uniform", "random")
FRESH = {"chain": SmallNet, "residual": Residual}


WRONG: dict[str, dict[str, object]] = {
    "static": {"scales": "yes"},
    "fbs": {"fall": 0.0},
    "ns": {"sparse_share": 1.0},
    "fcp": {"pull": 0.0},
    "cg": {"groups": 1},
    "autopruner": {"steepest": 0.5},
    "weight": {"rounds": "three"},
    "rnp": {"explore": 2.0},
    "d2nn": {"lr": 0.0},
    "fixed_k": {"centre": "one"},
    "gumbel": {"temperature": 0.0},
    "manidp": {"easy": 0.0},
    "slimmable": {"between": -1},
    "random": {"seed": 0.5},
    "uniform": {"distill": 2},
}


def squares() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [coloured_squares(512, seed=1)]


POINT = 0.01
CHANNEL = 0.04
"""what one channel of the most expensive layer costs in these networks of 16 channels"""
CHANNEL_EACH = 1 / 16
"""half a channel of every layer: as near as an equal share of 16 channels comes"""
MISS = {
    **dict.fromkeys(("cg", "d2nn", "rnp", "weight"), POINT),
    **dict.fromkeys(("autopruner", "depgraph", "gumbel", "ns", "sanp", "static"), CHANNEL),
    **dict.fromkeys(("fbs", "fcp", "fixed_k", "l1", "manidp", "random", "slimmable", "uniform"), CHANNEL_EACH),
}
"""on the images that a method is calibrated on"""


@pytest.mark.filterwarnings("ignore::sanp.core.errors.BudgetWarning")  # few channels, equal for all images
@pytest.mark.parametrize("name", PRUNING)
def test_a_method_trains_in_bf16_as_processors_that_have_it_do(name: str, trained: dict[str, nn.Module]) -> None:
    short = replace(QUICK, joint_epochs=2, precision="bf16")
    pruned = run_stages(METHODS[name].stages(trained["residual"], task(config=short)))
    assert all(parameter.dtype == torch.float32 for parameter in pruned.parameters())
    assert abs(sanp.evaluate(pruned, task().loader).kept - 0.5) <= MISS[name]


@pytest.mark.filterwarnings("ignore::sanp.core.errors.BudgetWarning")  # few channels, equal for all images
@pytest.mark.parametrize("shape", ["chain", "residual"])
@pytest.mark.parametrize("name", PRUNING)
def test_a_method_meets_the_budget_and_is_the_same_from_its_file(
    name: str, shape: str, trained: dict[str, nn.Module], tmp_path: Path
) -> None:
    net = trained[shape]
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    pruned = run_stages(METHODS[name].stages(net, task()))
    assert abs(sanp.evaluate(pruned, task().loader).kept - 0.5) <= MISS[name]
    report = sanp.evaluate(pruned, squares())
    assert report.kept == pytest.approx(0.5, abs=0.08)  # on images that it has not seen
    assert report.accuracy > 0.4  # four classes
    assert report.dense_flops == sanp.evaluate(net, squares()).flops
    assert report.flops == pytest.approx(sum(layer.flops for layer in report.layers))
    if not METHODS[name].sample_adaptive:
        assert len(set(report.per_sample)) == 1
    if name in ("rnp", "d2nn"):  # some images take other widths than others
        assert len(set(report.per_sample)) > 1
    for key, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[key]), f"{name} changed {key} of the network that it was given"
    sanp.save(pruned, tmp_path / "pruned.safetensors")
    loaded = sanp.load(tmp_path / "pruned.safetensors", FRESH[shape]())
    x = squares()[0][0][:64]
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(x), pruned.eval()(x), rtol=0, atol=1e-5)
    assert sanp.evaluate(loaded, squares()).flops == pytest.approx(report.flops)
    if name != "static":  # cut where no addition is in the way
        assert isinstance(pruned, CutNetwork) == (name in CUTTING)


@pytest.mark.parametrize("name", ["l1", "ns", "fcp", "autopruner", "weight", "cg", "fbs", "rnp", "uniform", "random"])
def test_a_run_stopped_between_two_stages_ends_the_same(name: str, trained: dict[str, nn.Module]) -> None:
    net = trained["residual"]
    short = task()
    ends: list[tuple[dict[str, torch.Tensor], torch.Tensor]] = []
    torch.manual_seed(5)
    stages = METHODS[name].stages(net, short)
    whole = None
    while whole is None:
        try:
            stage = next(stages)
        except StopIteration as over:
            whole = over.value
            break
        for _ in stage.run():
            pass
        ends.append(({key: tensor.clone() for key, tensor in stage.net.state_dict().items()}, torch.get_rng_state()))
    torch.manual_seed(99)
    again = METHODS[name].stages(net, short)
    for number in range(len(ends)):
        stage = next(again)
        if number < max(1, len(ends) - 1):
            stage.net.load_state_dict(ends[number][0])
            torch.set_rng_state(ends[number][1])
        else:
            for _ in stage.run():
                pass
    with pytest.raises(StopIteration) as over:
        next(again)
    resumed = over.value.value
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[key]), key


@pytest.mark.parametrize("name", PRUNING)
def test_a_budget_out_of_reach_is_an_error_before_training(name: str) -> None:
    for impossible in ("0.001%", "150M"):
        with pytest.raises(SanpError):
            next(METHODS[name].stages(SmallNet(), task(impossible)))


def test_methods_adapt_to_layers_and_samples_as_the_papers_tables_say() -> None:
    adaptive = {name: (METHODS[name].layer_adaptive, METHODS[name].sample_adaptive) for name in METHODS}
    assert adaptive["sanp"] == (True, True)
    assert adaptive["fixed_k"] == adaptive["fbs"] == adaptive["cg"] == (False, True)
    assert adaptive["static"] == adaptive["ns"] == adaptive["fcp"] == (True, False)
    assert adaptive["autopruner"] == adaptive["depgraph"] == (True, False)
    assert adaptive["dense"] == adaptive["l1"] == adaptive["uniform"] == adaptive["random"] == (False, False)


def test_a_table_says_which_methods_are_simplified() -> None:
    assert {name for name in METHODS if METHODS[name].simplified} == {"rnp", "d2nn"}
    assert [display_name(name) for name in ("rnp", "d2nn", "cg", "m_cifarnet", "unknown")] == [
        "RNP (simplified)",
        "D2NN (simplified)",
        "CG",
        "M-CifarNet",
        "unknown",
    ]


def test_settings_of_a_method_are_given_by_its_config() -> None:
    configs = {name: config for name in METHODS if (config := config_of(name)) is not None}
    assert configs.keys() == WRONG.keys()
    for name, config in configs.items():
        assert method_named(name, config()) == METHODS[name]
    changed = method_named("cg", configs["cg"](groups=8))
    assert changed.config.groups == 8  # type: ignore[attr-defined]
    for name, settings in WRONG.items():
        with pytest.raises(SanpError):
            configs[name](**settings)
    with pytest.raises(SanpError, match="method l1 has no settings of its own"):
        method_named("l1", configs["cg"]())
    with pytest.raises(SanpError, match="did you mean"):
        method_named("fbss")


def test_dense_leaves_the_network_as_it_is() -> None:
    net = SmallNet()
    assert run_stages(METHODS["dense"].stages(net, task())) is net
    assert not isinstance(net, GatedNetwork)


def test_a_file_with_damaged_channels_is_refused(trained: dict[str, nn.Module], tmp_path: Path) -> None:
    from sanp.methods.parts.network_forms import rebuild

    form = {"kind": "cut", "method": "l1", "input_shape": [1, 3, 8, 8]}
    x = torch.zeros(1, 3, 8, 8)
    for outputs in ([0, 99], [], [1, 0], "all"):
        kept = {"inputs": None, "outputs": outputs}
        with pytest.raises(SanpError, match="do not fit a layer of 16 channels"):
            rebuild(trained["chain"], {**form, "kept": {"features.0": kept}}, x)
    with pytest.raises(SanpError, match="which SmallNet does not have"):
        rebuild(trained["chain"], {**form, "kept": {"nowhere": {"inputs": None, "outputs": [0]}}}, x)
    with pytest.raises(SanpError, match="unknown kind of network"):
        rebuild(trained["chain"], {"kind": "folded"}, x)

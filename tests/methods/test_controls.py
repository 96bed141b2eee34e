"""The controls: a thinner network from scratch, random channels, and the dense network trained longer."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import sanp
from sanp.experiments.recipe import make_recipe
from sanp.methods import METHODS
from sanp.methods.cutting.cut import CutNetwork
from sanp.methods.parts.scratch import untrained
from sanp.methods.random_channels import RandomChannels, RandomChannelsConfig
from sanp.methods.uniform import Uniform, UniformConfig
from sanp.training.config import FitConfig
from sanp.training.watching import run_stages
from tests.conftest import SmallNet
from tests.methods.conftest import QUICK, Residual, task

STILL = FitConfig(pretrain_epochs=0, warmup_epochs=0, joint_epochs=0, norm_batches=0)


def test_uniform_thins_every_layer_by_the_same_factor() -> None:
    # With c of 16 channels in stem, inner and outer, 2 c in down and shortcut, the FLOPs are 64 · 28 c + 2 · 64 (9 c +
    # 1) c + 16 (9 c + 1) 2 c + 16 (c + 1) 2 c = 1984 c + 1472 c²: 408576 for c = 16, 199936 for c = 11.
    thin = run_stages(Uniform().stages(Residual(), task(199936 / 408576, config=STILL)))
    assert isinstance(thin, CutNetwork) and thin.method == "uniform"
    paths = ("stem", "inner", "outer", "down", "shortcut")
    assert [int(thin.net.get_submodule(path).out_channels) for path in paths] == [11, 11, 11, 22, 22]  # type: ignore[arg-type]
    assert sanp.evaluate(thin, task().loader).flops == 199936


def test_uniform_keeps_nothing_of_the_dense_network_s_weights_and_draws_new_ones_from_its_seed() -> None:
    torch.manual_seed(7)
    net = SmallNet()
    first, again, other = (
        run_stages(Uniform(config=UniformConfig(seed=seed)).stages(net, task("50%", config=STILL)))
        for seed in (0, 0, 1)
    )
    old = set(net.get_parameter("features.0.weight").flatten().tolist())
    new = first.get_parameter("net.features.0.weight")
    assert not old & set(new.flatten().tolist())
    assert torch.equal(new, again.get_parameter("net.features.0.weight"))
    assert not torch.equal(new, other.get_parameter("net.features.0.weight"))


def test_new_weights_do_not_disturb_the_random_numbers_of_training() -> None:
    net = SmallNet()
    before = torch.get_rng_state()
    untrained(net, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_uniform_trains_for_the_epochs_of_pretraining_and_pruning_together() -> None:
    config = replace(QUICK, pretrain_epochs=5, warmup_epochs=2, joint_epochs=3)
    stage = next(Uniform().stages(SmallNet(), task(config=config)))
    assert (stage.name, stage.epochs) == ("from scratch", 10)
    (optimizer,) = stage.optimizers
    assert optimizer.optimizer.param_groups[0]["initial_lr"] == config.pretrain_lr


def test_random_removes_the_same_share_of_every_layer_and_other_channels_for_another_seed() -> None:
    kept = []
    for seed in (0, 1):
        method = RandomChannels(config=RandomChannelsConfig(seed=seed))
        cut = run_stages(method.stages(Residual(), task("50%", config=STILL)))
        assert isinstance(cut, CutNetwork)
        assert cut.kept["inner"].outputs is not None and len(cut.kept["inner"].outputs) == 11
        kept.append(cut.kept["inner"].outputs)
    assert kept[0] != kept[1]


def test_dense_longer_trains_the_whole_network_for_the_others_epochs(trained: dict[str, nn.Module]) -> None:
    net = trained["chain"]
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    stages = METHODS["dense_longer"].stages(net, task("1%"))
    stage = next(stages)
    assert (stage.name, stage.epochs) == ("train longer", 4)
    for _ in stage.run():
        pass
    with pytest.raises(StopIteration) as over:
        next(stages)
    longer = over.value.value
    assert type(longer) is type(net)
    assert sanp.evaluate(longer, task().loader).kept == 1.0
    assert not torch.equal(longer.get_parameter("features.0.weight"), before["features.0.weight"])
    assert all(torch.equal(tensor, before[key]) for key, tensor in net.state_dict().items())


def test_the_settings_of_controls_are_given_in_a_recipe() -> None:
    recipe = make_recipe({"method": "random", "random": {"seed": 4}})
    assert recipe.pruning_method().config == RandomChannelsConfig(seed=4)  # type: ignore[attr-defined]

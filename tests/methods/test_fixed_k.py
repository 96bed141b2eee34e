from dataclasses import replace
from pathlib import Path

import torch

import sanp
from sanp.methods.fixed_k import FixedK, FixedKConfig
from sanp.spm.module import SPMConfig
from sanp.training.watching import run_stages
from tests.conftest import SmallNet
from tests.methods.conftest import QUICK, task


def test_fixed_k_has_descriptors_of_its_own_or_those_of_sanp() -> None:
    given = SPMConfig(standardize=True, centre=0.0, reduction=2)
    assert FixedKConfig().spm(given) == given
    assert FixedKConfig(centre=1.0).spm(given) == replace(given, centre=1.0)
    assert FixedKConfig(standardize=False).spm(given) == replace(given, standardize=False)


def test_a_file_keeps_the_descriptors(tmp_path: Path) -> None:
    short = task(config=replace(QUICK, warmup_epochs=0, joint_epochs=1))
    pruned = run_stages(FixedK(config=FixedKConfig(standardize=False)).stages(SmallNet(), short))
    sanp.save(pruned, tmp_path / "pruned.safetensors")
    loaded = sanp.load(tmp_path / "pruned.safetensors", SmallNet())
    x = short.example(SmallNet())
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(x), pruned.eval()(x))

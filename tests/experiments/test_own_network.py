"""Networks of one's own by name: built where the user names them, never because a file does."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import sanp
from sanp.cli.target import build_target
from sanp.experiments.own_network import LogitsOnly, build_named, build_own, given_network, is_own
from sanp.experiments.weights_file import take_weights
from tests.cli.conftest import Run
from tests.cli.conftest import run as run  # the fixture
from tests.conftest import SmallNet

MODULE = """
import torch

from tests.conftest import SmallNet
open("imported", "w").close()
def net(num_classes=4):
    return SmallNet(num_classes, width=8)
def fixed():
    return SmallNet(7, width=8)
def wants(size):
    return SmallNet(4)
ready = SmallNet(4)
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_nets.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    return tmp_path


def test_a_factory_gets_the_number_of_classes_if_it_takes_it(folder: Path) -> None:
    x = torch.zeros(2, 3, 8, 8)
    assert build_own("my_nets:net", num_classes=5)(x).shape == (2, 5)
    assert build_own("my_nets:net")(x).shape == (2, 4)
    assert build_own("my_nets:fixed", num_classes=5)(x).shape == (2, 7)
    assert build_own("my_nets:ready", num_classes=5)(x).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_nets:nett", "did you mean net"),
        ("my_nets:number", "is a int"),
        ("my_nets:wants", "cannot be called"),
        ("no_such_module:net", "No module named 'no_such_module'.*: go to the folder that holds no_such_module"),
        ("transformers:resnt", "unknown type of network in transformers 'resnt': did you mean resnet"),
        ("timm:", "does not name a network"),
        ("transformers:no_such_folder/x", "cannot be built"),
    ],
)
def test_a_name_that_cannot_be_built_says_why(
    folder: Path, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(sanp.SanpError, match=words):
        build_own(name)


def test_what_a_file_names_is_not_imported(folder: Path) -> None:
    with pytest.raises(sanp.SanpError, match="give --network my_nets:net"):
        build_named("my_nets:net", num_classes=4, image_size=8)
    assert not (folder / "imported").exists()
    with given_network("my_nets:net"):
        assert isinstance(build_named("my_nets:net", num_classes=4, image_size=8), SmallNet)
    with pytest.raises(sanp.SanpError, match="give --network"):
        build_named("my_nets:net", num_classes=4, image_size=8)


def test_the_wrong_number_of_classes_is_said_before_training(folder: Path) -> None:
    with given_network("my_nets:fixed"), pytest.raises(sanp.SanpError, match=r"\(2, 7\) for two images.*4 classes"):
        build_named("my_nets:fixed", num_classes=4, image_size=8)


def test_a_network_given_for_a_run_of_a_backbone_is_refused() -> None:
    with given_network("my_nets:net"), pytest.raises(sanp.SanpError, match="leave it out"):
        build_named("resnet18", num_classes=4, image_size=32)


def test_names(folder: Path) -> None:
    assert is_own("a:b") and is_own("timm:resnet18")
    assert not any(is_own(name) for name in ("resnet18", ":", "a:", ":b", 3, None))


def test_transformers_networks_give_their_logits() -> None:
    pytest.importorskip("transformers")
    net = build_own("transformers:resnet", num_classes=3)
    assert isinstance(net, LogitsOnly)
    assert net.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 3)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_weights_are_taken_where_name_and_shape_fit(prefix: str, tmp_path: Path) -> None:
    trained, fresh = SmallNet(4), SmallNet(9)
    tensors = {prefix + name: tensor.clone() for name, tensor in trained.state_dict().items()}
    save_file({**tensors, f"{prefix}other": torch.zeros(2)}, tmp_path / "weights.safetensors")
    taken = take_weights(fresh, tmp_path / "weights.safetensors")
    assert torch.equal(fresh.features[0].weight, trained.features[0].weight)
    assert set(taken.other_shape) == {"classifier.weight", "classifier.bias"} == set(taken.missing)
    assert taken.taken == len(trained.state_dict()) - 2 and len(taken.unknown) == 1
    assert "of another shape: classifier." in str(taken)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(sanp.SanpError, match="no tensor that fits SmallNet"):
        take_weights(SmallNet(), tmp_path / "weights.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    with pytest.raises(sanp.SanpError, match="safetensors"):
        build_target("resnet18", tmp_path / "broken.safetensors", torch.zeros(1, 3, 32, 32))


def test_a_pruned_file_is_loaded_as_it_was_pruned(folder: Path) -> None:
    example = torch.randn(2, 3, 8, 8)
    gated = sanp.gate(build_own("my_nets:net"), example).eval()
    gated.set_budget("60%", torch.randn(32, 3, 8, 8))
    sanp.save(gated, "pruned.safetensors")
    found = build_target("my_nets:net", Path("pruned.safetensors"), example)
    assert isinstance(found, sanp.GatedNetwork)
    assert torch.equal(found.eval()(example), gated(example))


def test_a_run_of_an_own_network_goes_through_every_command(run: Run, folder: Path) -> None:
    common = ("--epochs", "1,1,1", "--batch-size", "32", "--budget", "60%", "--threads", "1")
    code, out, err = run("train", "--network", "my_nets:net", "--out", "r", *common)
    assert code == 0, err
    assert 'backbone = "my_nets:net"' in Path("r/config.toml").read_text(encoding="utf-8")
    for command in (("eval", "r"), ("inspect", "r"), ("export", "r", "r.onnx")):
        code, _, err = run(*command)
        assert code == 2 and "give --network my_nets:net" in err, command
        code, out, err = run(*command, "--network", "my_nets:net")
        assert code == 0, err
    code, out, _ = run("inspect", "my_nets:net", "--input", "1,3,8,8")
    assert code == 0 and "features.0" in out


def test_a_recipe_file_cannot_import_a_network(run: Run, folder: Path) -> None:
    Path("recipe.toml").write_text('backbone = "my_nets:net"\n', encoding="utf-8")
    code, _, err = run("train", "--recipe", "recipe.toml", "--out", "r")
    assert code == 2 and "give --network my_nets:net" in err
    assert not Path("imported").exists()

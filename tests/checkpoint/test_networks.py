import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import sanp
from tests.conftest import SmallNet, TwoConvs


@pytest.fixture
def gated() -> sanp.GatedNetwork:
    gated = sanp.gate(SmallNet(), torch.zeros(1, 3, 8, 8), skip=["features.6"])
    gated.set_budget("60%", torch.randn(64, 3, 8, 8))
    return gated.eval()


@pytest.fixture
def file(gated: sanp.GatedNetwork, tmp_path: Path) -> Path:
    sanp.save(gated, tmp_path / "net.safetensors")
    return tmp_path / "net.safetensors"


def test_a_loaded_network_gives_the_same_outputs_and_decisions(gated: sanp.GatedNetwork, file: Path) -> None:
    torch.manual_seed(99)
    again = sanp.load(file, SmallNet().eval())
    assert isinstance(again, sanp.GatedNetwork)
    x = torch.randn(5, 3, 8, 8)
    with sanp.record(gated) as first:
        y = gated(x)
    with sanp.record(again) as second:
        assert torch.equal(again(x), y)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name].decision, second[name].decision) for name in first)
    assert again.skipped == gated.skipped and again.budget == gated.budget
    assert again.dense_flops == gated.dense_flops


def test_the_file_holds_each_weight_once_and_no_mask(gated: sanp.GatedNetwork, file: Path) -> None:
    numbers = sum(t.numel() for n, t in gated.net.state_dict().items() if not n.endswith("threshold"))
    assert file.stat().st_size < 4 * numbers + 6000
    with safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()["sanp"])
        assert not any("threshold" in name or "mask" in name for name in opened.keys())  # noqa: SIM118
    assert header["format"] == 1 and header["network"] == "SmallNet"
    assert header["gates"]["budget"] == {"value": 0.6, "unit": "share"}
    assert set(header["gates"]["thresholds"]) == set(gated.layers)


def test_half_precision_halves_the_file(gated: sanp.GatedNetwork, file: Path, tmp_path: Path) -> None:
    sanp.save(gated, tmp_path / "half.safetensors", dtype=torch.float16)
    assert (tmp_path / "half.safetensors").stat().st_size < 0.65 * file.stat().st_size
    x = torch.randn(3, 3, 8, 8)
    again = sanp.load(tmp_path / "half.safetensors", SmallNet()).eval()
    assert torch.allclose(again(x), gated(x), atol=1e-2)


def test_an_ordinary_network_is_saved_and_loaded_too(tmp_path: Path) -> None:
    net, other = SmallNet().eval(), SmallNet().eval()
    sanp.save(net, tmp_path / "dense.safetensors")
    again = sanp.load(tmp_path / "dense.safetensors", other)
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(again(x), net(x))
    assert not torch.equal(other(x), net(x))  # what was given is left as it was


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 3, 3, padding=1)
            self.second = nn.Conv2d(3, 3, 3, padding=1)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.second(torch.relu(self.first(x)))
            return y

    net = Tied()
    sanp.save(net, tmp_path / "tied.safetensors")
    with safe_open(tmp_path / "tied.safetensors", framework="pt") as opened:
        assert "second.weight" not in opened.keys()  # noqa: SIM118
    x = torch.randn(1, 3, 8, 8)
    assert torch.equal(sanp.load(tmp_path / "tied.safetensors", Tied())(x), net(x))


def test_a_wrong_network_is_named_by_its_first_wrong_tensor(file: Path) -> None:
    with pytest.raises(sanp.SanpError, match=r"classifier\.bias.* is \(4,\), and SmallNet wants \(9,\)"):
        sanp.load(file, SmallNet(num_classes=9))
    with pytest.raises(sanp.SanpError, match=r"features\.6"):  # the header skips a layer that this network lacks
        sanp.load(file, TwoConvs())


def test_a_file_from_before_a_setting_computes_what_it_did(file: Path) -> None:
    assert {layer.spm.most for layer in sanp.load(file, SmallNet()).layers.values()} == {8.0}  # type: ignore[union-attr]
    older = sanp.load(rewritten(file, lambda header: header["gates"]["spm"].pop("most")), SmallNet())
    assert {layer.spm.most for layer in older.layers.values()} == {None}  # type: ignore[union-attr]


def rewritten(file: Path, change: object) -> Path:
    """The file with its header's JSON changed."""
    with safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()["sanp"])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    change(header)  # type: ignore[operator]
    save_file(tensors, file, {"sanp": json.dumps(header)})
    return file


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.update(format=99), "format 99"),
        (lambda h: h.pop("network"), "header's field"),
        (lambda h: h["gates"].pop("spm"), "gates are damaged"),
        (lambda h: h["gates"]["spm"].update(reduction=0), "reduction 0"),
        (lambda h: h["gates"]["spm"].update(secret=1), "secret"),
        (lambda h: h["gates"].update(method="magic"), "unknown method 'magic'"),
        (lambda h: h["gates"].update(input_shapes=[[1, 3, 10**6, 10**6]]), "give load an example_input"),
        (lambda h: h["gates"].update(input_shapes=[[1, -3, 8, 8]]), "not a size"),
        (lambda h: h["gates"].update(thresholds={}), "thresholds"),
        (lambda h: h["gates"].update(budget={"value": 1}), "budget"),
    ],
)
def test_a_damaged_header_is_an_error_that_says_which_field(file: Path, change: object, words: str) -> None:
    with pytest.raises(sanp.SanpError, match=words):
        sanp.load(rewritten(file, change), SmallNet())


def test_truncated_foreign_and_missing_files_are_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for length in (0, 7, 100, len(whole) - 10):
        file.write_bytes(whole[:length])
        with pytest.raises(sanp.SanpError, match="truncated or not a safetensors file"):
            sanp.load(file, SmallNet())
    file.write_bytes(struct.pack("<Q", 1 << 60) + whole[8:])
    with pytest.raises(sanp.SanpError, match="not a safetensors file"):
        sanp.load(file, SmallNet())
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(sanp.SanpError, match=r"not written by sanp\.save"):
        sanp.load(file, SmallNet())
    with pytest.raises(sanp.SanpError, match="not a file"):
        sanp.load(tmp_path / "none.safetensors", SmallNet())


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path(tmp_path / "was here").write_text, ("",))

    torch.save({"weights": Attack()}, tmp_path / "evil.safetensors")
    with pytest.raises(sanp.SanpError, match="not a safetensors file"):
        sanp.load(tmp_path / "evil.safetensors", SmallNet())
    assert not (tmp_path / "was here").exists()


def test_a_failed_write_leaves_the_earlier_file(
    file: Path, gated: sanp.GatedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sanp.checkpoint.networks.save_file", full_disk)
    with pytest.raises(sanp.SanpError, match="No space left on device"):
        sanp.save(gated, file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("size", [2**30, 2**32, 2**70])
def test_a_header_cannot_ask_for_an_example_that_fills_the_memory(file: Path, size: int) -> None:
    """2**32 x 2**32 is 0 in 64 bits, and 2**70 has no place in them."""
    with safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()["sanp"])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    header["gates"]["input_shapes"] = [[size, size, 8, 8]]
    save_file(tensors, file, {"sanp": json.dumps(header)})
    with pytest.raises(sanp.SanpError, match="asks for an example of"):
        sanp.load(file, SmallNet())

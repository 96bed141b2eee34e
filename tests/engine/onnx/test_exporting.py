"""sanp.export: the file in ONNX Runtime against the network."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.errors import SanpError
from sanp.engine.onnx import exporting
from tests.engine.networks import EXAMPLES, gated_network, trained_like

onnxruntime = pytest.importorskip("onnxruntime")


def run(path: Path, x: Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]  # type: ignore[no-any-return]


def difference(given: np.ndarray, network: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        expected = network(x).numpy()
    assert given.shape == expected.shape
    return float(np.abs(given - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", ["residual", "inverted", "shuffled", "dense", "sequence"])
def test_a_gated_network_gives_the_same_in_onnx_runtime_for_any_batch(name: str, dynamic: bool, tmp_path: Path) -> None:
    make, shape = EXAMPLES[name]
    torch.manual_seed(0)
    x = torch.randn(5, *shape)
    gated = gated_network(trained_like(make(), shape), x, config=sanp.SPMConfig(centre=0.5))
    path = sanp.export(gated, tmp_path / "m.onnx", x, dynamic=dynamic)
    for batch in (1, 2, 5):
        assert difference(run(path, x[:batch]), gated, x[:batch]) < 1e-5


def test_a_skipping_file_holds_gathered_weights_and_no_mask(tmp_path: Path) -> None:
    import onnx

    make, shape = EXAMPLES["residual"]
    x = torch.randn(1, *shape)
    gated = gated_network(trained_like(make(), shape), x)
    model = onnx.load(sanp.export(gated, tmp_path / "m.onnx", x, dynamic=True))
    body = next(node for node in model.graph.node if node.op_type == "Scan").attribute[0].g
    made = {name: node for node in body.node for name in node.output}
    convolutions = [node for node in body.node if node.op_type == "Conv"]
    assert len(convolutions) == 6
    assert all(made[node.input[1]].op_type == "Gather" for node in convolutions)


def test_a_gated_network_goes_through_torch_export() -> None:
    make, shape = EXAMPLES["residual"]
    x = torch.randn(3, *shape)
    gated = gated_network(trained_like(make(), shape), x)
    batch = torch.export.Dim("N", min=1)
    program = torch.export.export(gated, (x,), dynamic_shapes={"args": ({0: batch},)})
    more = torch.randn(5, *shape)
    assert difference(program.module()(more).detach().numpy(), gated, more) < 1e-5


def test_a_plain_network_exports_too(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(2)).eval()
    x = torch.randn(2, 3, 14, 13)
    assert difference(run(sanp.export(net, tmp_path / "m.onnx", x), x), net, x) < 1e-5


def test_what_cannot_skip_says_what_to_do(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.LogSigmoid())
    with pytest.raises(SanpError, match=r"log_sigmoid_forward.*dynamic=False"):
        sanp.export(net, tmp_path / "m.onnx", torch.randn(1, 1, 5, 5), dynamic=True)
    assert not (tmp_path / "m.onnx").exists()
    path = sanp.export(net, tmp_path / "m.onnx", torch.randn(1, 1, 5, 5))
    assert path.exists()
    assert not path.skips
    assert "log_sigmoid_forward" in path.why


def test_what_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SanpError, match="is a folder"):
        sanp.export(nn.Conv2d(1, 1, 1), tmp_path, torch.zeros(1, 1, 2, 2))
    for dynamic in (True, False):
        with pytest.raises(SanpError, match="does not run on the example_input"):
            sanp.export(nn.Conv2d(1, 1, 1), tmp_path / "m.onnx", torch.zeros(1, 3, 2, 2), dynamic=dynamic)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SanpError, match="does not exist"):
        sanp.export(nn.Conv2d(1, 1, 1), tmp_path / "nowhere" / "m.onnx", torch.zeros(1, 1, 2, 2))


@pytest.mark.parametrize("seconds, skips", [((0.0010, 0.0015), True), ((0.0015, 0.0010), False)])
def test_the_form_that_was_faster_is_written_and_the_file_says_why(
    seconds: tuple[float, float], skips: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    monkeypatch.setattr(exporting, "_seconds", lambda models, x: list(seconds))
    make, shape = EXAMPLES["residual"]
    x = torch.randn(3, *shape)
    gated = gated_network(trained_like(make(), shape), x)
    path = sanp.export(gated, tmp_path / "m.onnx", x)
    model = onnx.load(path)
    assert path == tmp_path / "m.onnx"
    assert ("Scan" in {node.op_type for node in model.graph.node}) == skips == path.skips
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert said == {"sanp.form": "skipping" if skips else "masked", "sanp.why": path.why}
    wanted = [f"{1e3 * each:.2f} ms" for each in seconds]
    assert all(each in path.why for each in wanted)
    assert difference(run(path, x), gated, x) < 1e-5


def test_both_forms_are_timed_in_onnx_runtime(tmp_path: Path) -> None:
    make, shape = EXAMPLES["residual"]
    x = torch.randn(1, *shape)
    small, large = (
        exporting.skipping_model(gated_network(trained_like(make(), shape), x), x),
        exporting.masked_model(nn.Sequential(nn.Conv2d(shape[0], 64, 3), nn.Conv2d(64, 512, 15, padding=14)).eval(), x),
    )
    first, second = exporting._seconds([small, large], x)
    assert 0 < first < second


class Pyramid(nn.Module):
    """Three outputs of different shapes, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        fine = self.first(x).relu()
        coarse = self.second(fine)
        return {"coarse": coarse, "fine": fine, "mean": coarse.mean((2, 3)), "again": fine}


@pytest.mark.parametrize("dynamic", [True, False])
def test_every_one_of_several_outputs_is_written(dynamic: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8, 8)
    gated = gated_network(Pyramid().eval(), x)
    path = sanp.export(gated, tmp_path / "m.onnx", x, dynamic=dynamic)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = list(gated(x).values())
    given = session.run(None, {"input": x.numpy()})
    assert [each.name for each in session.get_outputs()] == ["output", "output_1", "output_2", "output_3"]
    for one, other in zip(given, expected, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other.numpy()).max() < 1e-5


def test_a_network_that_looks_at_numbers_is_refused(tmp_path: Path) -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.conv(x)
            return y if y.mean() > 0 else -y

    for dynamic in (True, False):
        with pytest.raises(SanpError, match="another image may take another way"):
            sanp.export(Looks(), tmp_path / "m.onnx", torch.randn(1, 3, 8, 8), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", ["residual", "inverted", "shuffled", "dense"])
def test_an_int8_file_gives_what_the_int8_engine_gives(name: str, dynamic: bool, tmp_path: Path) -> None:
    import onnx

    make, shape = EXAMPLES[name]
    torch.manual_seed(0)
    x = torch.randn(40, *shape)
    gated = gated_network(trained_like(make(), shape), x, config=sanp.SPMConfig(centre=0.5))
    path = sanp.export(gated, tmp_path / "m.onnx", x[:2], dynamic=dynamic, precision="int8", calibration=x)
    fast = sanp.compile(gated, x[:2], tune=False, precision="int8")
    body = next(node for node in onnx.load(path).graph.node if node.op_type == "Scan").attribute[0].g
    assert sum(node.op_type == "ConvInteger" for node in body.node) >= 2
    assert path.skips is dynamic
    assert path.why == f"dynamic={dynamic} was given"
    for batch in (1, 5):
        given, wanted = torch.from_numpy(run(path, x[:batch])), fast(x[:batch])
        with torch.no_grad():
            fp32 = gated(x[:batch])
        assert (given - wanted).square().mean() < 0.05 * (wanted - fp32).square().mean()


def test_an_int8_file_wants_a_calibration_once(tmp_path: Path) -> None:
    make, shape = EXAMPLES["residual"]
    x = torch.randn(40, *shape)
    net = trained_like(make(), shape)
    with pytest.raises(SanpError, match="wants calibration=images"):
        sanp.export(net, tmp_path / "m.onnx", x[:1], precision="int8")
    first = sanp.export(net, tmp_path / "m.onnx", x[:1], precision="int8", calibration=x)
    times = re.fullmatch(r"([\d.]+) ms an image that skips, ([\d.]+) ms one that computes every channel", first.why)
    assert times is not None
    assert first.skips == (float(times[1]) < float(times[2])) or times[1] == times[2]
    assert run(sanp.export(net, tmp_path / "n.onnx", x[:1], precision="int8"), x[:3]).shape == (3, 5)
    with pytest.raises(SanpError, match='calibration was given for precision="fp32"'):
        sanp.export(net, tmp_path / "m.onnx", x[:1], calibration=x)
    with pytest.raises(SanpError, match="unknown precision"):
        sanp.export(net, tmp_path / "m.onnx", x[:1], precision="int4")


@pytest.mark.parametrize("name", ["double precision inside", "an operator that ONNX lacks"])
def test_what_no_runtime_loads_is_an_error_and_prints_nothing(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return torch.channel_shuffle(x, 2) if "lacks" in name else self.conv(x.double()).float()

    net = nn.Sequential(nn.Conv2d(3, 4, 3), Inside(), nn.Conv2d(4, 2, 3)).eval()
    said = "torch's exporter cannot write" if "lacks" in name else "ONNX Runtime does not load it"
    with pytest.raises(SanpError, match=said):
        sanp.export(net, tmp_path / "m.onnx", torch.randn(1, 3, 12, 12), dynamic=False)
    assert capfd.readouterr().out == "" and not list(tmp_path.iterdir())

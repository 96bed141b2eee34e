"""sanp.export: the file in ONNX Runtime against the network."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.errors import SanpError
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
    model = onnx.load(sanp.export(gated, tmp_path / "m.onnx", x))
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
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Softmax(1))
    with pytest.raises(SanpError, match=r"_softmax.*dynamic=False"):
        sanp.export(net, tmp_path / "m.onnx", torch.randn(1, 1, 5, 5))
    assert not (tmp_path / "m.onnx").exists()
    path = sanp.export(net, tmp_path / "m.onnx", torch.randn(1, 1, 5, 5), dynamic=False)
    assert path.exists()


def test_what_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SanpError, match="is a folder"):
        sanp.export(nn.Conv2d(1, 1, 1), tmp_path, torch.zeros(1, 1, 2, 2))
    for dynamic in (True, False):
        with pytest.raises(SanpError, match="does not run on the example_input"):
            sanp.export(nn.Conv2d(1, 1, 1), tmp_path / "m.onnx", torch.zeros(1, 3, 2, 2), dynamic=dynamic)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SanpError, match="does not exist"):
        sanp.export(nn.Conv2d(1, 1, 1), tmp_path / "nowhere" / "m.onnx", torch.zeros(1, 1, 2, 2))

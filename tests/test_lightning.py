"""The callback for Lightning, where it is installed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import sanp
from tests.networks.parts import block, conv

L = pytest.importorskip("lightning.pytorch")
pytestmark = pytest.mark.filterwarnings("ignore")
IMAGES = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Module(L.LightningModule):  # type: ignore[misc, name-defined]
    """Its loss asks for nothing, so that only the cost moves the gates."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return 0 * self.net(batch[0]).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.spm_parameters(), lr=0.05)  # type: ignore[operator, arg-type]


def fit(gated: sanp.GatedNetwork, callback: Any, **settings: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(accelerator="cpu", devices=1, callbacks=[callback], **quiet, **settings)
    trainer.fit(Module(gated), DataLoader(TensorDataset(IMAGES), batch_size=8))
    return trainer


@pytest.fixture
def gated() -> sanp.GatedNetwork:
    torch.manual_seed(0)
    return sanp.gate(nn.Sequential(block(3, 16), conv(16, 8)), IMAGES[:1])


def test_the_callback_moves_the_gates_and_meets_the_budget(gated: sanp.GatedNetwork) -> None:
    from sanp.lightning import BudgetCallback

    before = [parameter.clone() for parameter in gated.spm_parameters()]
    callback = BudgetCallback(gated, "50%", images=IMAGES)
    fit(gated, callback, max_epochs=2, accumulate_grad_batches=2, enable_checkpointing=False)
    assert callback.cost is not None and callback.cost.step == 8  # a step a batch
    assert any(not torch.equal(old, new) for old, new in zip(before, gated.spm_parameters(), strict=True))
    with torch.no_grad(), sanp.record(gated.eval()) as gates:
        gated(IMAGES)
    flops = gated.cost.per_sample({name: gate.decision for name, gate in gates.items()}).mean()
    assert abs(float(flops) / gated.dense_flops - 0.5) < 0.03


def test_a_resumed_fit_goes_on_with_the_controllers_state(gated: sanp.GatedNetwork, tmp_path: Any) -> None:
    from sanp.lightning import BudgetCallback

    first = BudgetCallback(gated, "50%")
    trainer = fit(gated, first, max_epochs=1, default_root_dir=tmp_path)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    second = BudgetCallback(gated, "50%")
    trainer = L.Trainer(
        accelerator="cpu", devices=1, callbacks=[second], max_epochs=2, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    loader = DataLoader(TensorDataset(IMAGES), batch_size=8)
    trainer.fit(Module(gated), loader, ckpt_path=tmp_path / "half.ckpt", weights_only=False)
    assert second.cost is not None and second.cost.step == 8


def test_a_network_that_is_not_gated_or_a_budget_that_cannot_be_met_is_refused(gated: sanp.GatedNetwork) -> None:
    from sanp.lightning import BudgetCallback

    with pytest.raises(sanp.SanpError, match=r"sanp\.gate"):
        BudgetCallback(gated.net, "50%")  # type: ignore[arg-type]
    with pytest.raises(sanp.SanpError, match="at least that"):
        BudgetCallback(gated, 1e-6)

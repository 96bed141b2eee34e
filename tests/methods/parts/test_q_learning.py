import pytest
import torch

from sanp.core.batch_slice import BatchSlice, using_slice
from sanp.methods.d2nn import D2NN, episode_reward
from sanp.methods.parts.chosen_width import ChoosingSPM, first_channels
from sanp.methods.parts.q_learning import Episode
from sanp.methods.rnp import RNP, Agent, RecurrentValues, q_targets
from sanp.spm.module import SPMConfig
from sanp.spm.recording import record
from sanp.spm.saliency import Saliency
from tests.conftest import SmallNet


class Fixed(Saliency):
    """Values that do not depend on the image."""

    flops = 0

    def __init__(self, values: list[list[float]]) -> None:
        super().__init__()
        self.values = torch.tensor(values)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.values


def test_a_width_is_the_first_channels() -> None:
    assert first_channels(6, (0.25, 0.5, 1.0)).tolist() == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1] * 6]
    assert first_channels(2, (0.1,)).tolist() == [[1, 0]]


def test_the_best_value_less_its_price_is_chosen() -> None:
    spm = ChoosingSPM(Fixed([[0.2, 0.5], [0.4, 0.5]]), 4, (0.25, 1.0)).eval()
    gates = spm(torch.zeros(2, 1))
    assert gates.decision.tolist() == [[1, 1, 1, 1]] * 2
    assert gates.saliency.tolist() == [[1, 1, 1, 1]] * 2
    spm.threshold.fill_(0.2)  # the price is 0.05 or 0.2: 0.15 to 0.3, then 0.35 to 0.3
    assert spm(torch.zeros(2, 1)).decision.tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]


def test_exploring_is_for_training_only() -> None:
    spm = ChoosingSPM(Fixed([[0.0, 9.0]] * 1000), 4, (0.25, 1.0))
    spm.explore = 0.5
    taken = spm.train()(torch.zeros(1000, 1))
    assert 200 < int((taken.action == 0).sum()) < 300  # half explore, half of those take the first
    assert taken.decision.all() and not taken.applied.all()
    assert spm.eval()(torch.zeros(1000, 1)).applied.all()


def test_a_process_explores_as_the_whole_batch_would() -> None:
    values = [[0.0, 9.0]] * 40
    whole, part = ChoosingSPM(Fixed(values), 4, (0.25, 1.0)), ChoosingSPM(Fixed(values[:15]), 4, (0.25, 1.0))
    whole.explore = part.explore = 0.5
    torch.manual_seed(1)
    wanted = whole(torch.zeros(40, 1)).action
    torch.manual_seed(1)
    with using_slice(BatchSlice(25, 40, 40)):
        assert part(torch.zeros(15, 1)).action.tolist() == wanted[25:].tolist()
    assert 0 < int(wanted[25:].sum()) < 15  # both widths are among them


def test_calibration_opens_layers_one_by_one_where_each_changes_as_a_whole() -> None:
    gated = D2NN().gate(SmallNet(), torch.zeros(1, 3, 8, 8), spm=SPMConfig())
    for layer, worth in zip(gated.layers.values(), (0.3, 0.2, 0.1), strict=True):
        layer.spm.saliency = Fixed([[0.0, worth]] * 4)

    def cost(a: int, b: int, c: int) -> int:  # 64 positions 3 > a; 16 positions a > b and b > c
        return 64 * (3 * 9 + 1) * a + 16 * (9 * a + 1) * b + 16 * (9 * b + 1) * c

    # A rising price closes the last layer first: costs are those of (16, 16, 16), (16, 16, 4), (16, 4, 4), (4, 4, 4).
    whole, images = cost(16, 16, 16), torch.zeros(4, 3, 8, 8)
    assert gated.set_budget(cost(16, 16, 4) / whole, images) == pytest.approx(cost(16, 16, 4) / whole)
    # Half lies between cost(16, 16, 4) = 73 % and cost(16, 4, 4) = 39 %: there is room for the last layer, at 46 %.
    assert gated.set_budget(0.5, images) == pytest.approx(cost(16, 4, 16) / whole)


def test_q_learning_backs_up_the_best_next_value() -> None:
    values = [torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, 3.0]]), torch.tensor([[-1.0, -2.0]])]
    rewards = torch.tensor([[-0.1, -0.2, -0.3]])
    assert q_targets(values, rewards).tolist()[0] == pytest.approx([4.9, -1.2, -0.3])


def test_rnp_learns_from_a_price_per_group_and_the_loss_at_the_end() -> None:
    first = ChoosingSPM(Fixed([[0.0, 0.4]]), 4, (0.5, 1.0)).eval()(torch.zeros(1, 1))
    last = ChoosingSPM(Fixed([[0.3, 0.1]]), 4, (0.5, 1.0)).eval()(torch.zeros(1, 1))
    episode = Episode([first, last], torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([0.8]))
    # Widths 1 and 0.5 at a price of 0.4 over two layers: -0.2 and -0.1; the loss of 2 at α = 0.1 takes 0.2 more.
    # Targets: -0.2 + 0.3 = 0.1 and -0.3; the values taken are 0.4 and 0.3: (0.3² + 0.6²) / 2
    assert RNP().learn(episode, 0.4).item() == pytest.approx((0.09 + 0.36) / 2)


def test_d2nn_moves_every_value_to_the_episodes_reward() -> None:
    reward = episode_reward(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), 1.0)
    assert reward.tolist() == [0.25, -0.25]  # λ = 1/2
    choice = ChoosingSPM(Fixed([[0.0, 0.4], [0.1, 0.0]]), 4, (0.25, 1.0)).eval()(torch.zeros(2, 1))
    episode = Episode([choice], torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
    assert D2NN().learn(episode, 1.0).item() == pytest.approx((0.15**2 + 0.35**2) / 2)


def test_the_agents_memory_passes_from_layer_to_layer_and_ends_with_the_forward() -> None:
    agent = Agent()
    first, second = RecurrentValues(3, agent), RecurrentValues(3, agent)
    first.first = second.last = True
    x = torch.randn(2, 3, 4, 4)
    d = x.mean((2, 3))
    hidden = agent.cell(torch.relu(first.encode(d)))
    wanted = agent.decode(agent.cell(torch.relu(second.encode(d)), hidden))
    first(x)
    torch.testing.assert_close(second(x), wanted)
    first(x)
    torch.testing.assert_close(second(x), wanted)


def test_inserting_choices_does_not_change_the_network() -> None:
    net, x = SmallNet().eval(), torch.randn(4, 3, 8, 8)
    for method in (RNP(), D2NN()):
        gated = method.gate(net, x[:1], spm=SPMConfig()).eval()
        with record(gated) as gates:
            torch.testing.assert_close(gated(x), net(x))
        assert all(bool(gate.decision.all()) for gate in gates.values())

"""What is shown and kept of a training."""

import io
import sys

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import sanp
from sanp.training import display as shown
from sanp.training.display import COLUMNS, Display, clock, counted
from sanp.training.finish import finish_in_steps
from sanp.training.stage import Progress

Batches = list[tuple[Tensor, Tensor]]
QUICK = sanp.FitConfig(warmup_epochs=1, norm_batches=2, calibrate_images=64, precision="fp32")


def progress(stage: str = "joint", step: int = 10, steps: int = 20, **other: object) -> Progress:
    given = {"loss": 1.0, "accuracy": 0.5, "kept": 0.4, "target": 0.35, "cost_weight": 0.1, "epoch_over": True}
    return Progress(stage=stage, epoch=1, epochs=2, step=step, steps=steps, **{**given, **other})  # type: ignore[arg-type]


def plain(tested: bool = True, **settings: object) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    return Display({"joint": 2}, console=Console(file=out, width=80), tested=tested, **settings), out  # type: ignore[arg-type]


def test_plain_lines_have_one_header_and_every_number_stands_under_its_name() -> None:
    display, out = plain()
    with display:
        display(progress(test_accuracy=0.75))
        display(progress(step=20, test_accuracy=0.8))
    header, first, second = out.getvalue().splitlines()
    assert header.split() == [*COLUMNS[:-1], "time", "left"]
    assert max(map(len, (header, first, second))) < 80
    for name, text in (
        ("accuracy", "50.0%"),
        ("cost", "40.0%"),
        ("budget", "35.0%"),
        ("λ", "+0.10"),
        ("test", "75.0%"),
    ):
        end = header.index(name) + len(name)
        assert first[:end].endswith(text)
    assert "80.0%" in second


def test_without_tests_there_is_no_column_for_them() -> None:
    display, out = plain(tested=False)
    display(progress())
    assert "test" not in out.getvalue()


def test_what_was_measured_on_held_out_images_is_not_called_a_test() -> None:
    display, out = plain(held_out=True)
    display(progress(test_accuracy=0.75))
    header, line = out.getvalue().splitlines()
    assert "test" not in header and line[: header.index("heldout") + len("heldout")].endswith("75.0%")


def test_the_time_left_has_the_norms_and_thresholds_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 100.0, 100.0])  # started, then asked after 10 of 20 steps: 10 s a step
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(now))
    display, out = plain(finish=8.0)
    display(progress())
    assert out.getvalue().splitlines()[1].endswith("3:00")  # (10 + 8) steps


def test_what_follows_the_last_step_is_said_before_it_is_done() -> None:
    display, out = plain(finish=8.0)
    display(progress())
    assert "thresholds" not in out.getvalue()
    display(progress(step=20))
    assert out.getvalue().splitlines()[-1] == "batch norm statistics and thresholds ..."


def test_the_finish_is_counted_in_steps() -> None:
    # 24 forwards for the norms, 15 levels on 8 batches for the thresholds; a step is three forwards
    assert finish_in_steps(sanp.FitConfig(norm_batches=24, calibrate_images=1000), 128) == (24 + 15 * 8) / 3
    assert finish_in_steps(sanp.FitConfig(norm_batches=0, calibrate_images=0), 128) == 0


def test_fit_shows_its_epochs_and_gives_them_back(
    small_net: nn.Module, squares_loader: Batches, capsys: pytest.CaptureFixture[str]
) -> None:
    gated = sanp.gate(small_net, squares_loader[0][0])
    history = sanp.fit(gated, squares_loader, "60%", epochs=3, config=QUICK)
    assert [(each.stage, each.epoch) for each in history] == [("warm-up", 1), ("joint", 1), ("joint", 2), ("joint", 3)]
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in told[1:5]] == [[e.stage, f"{e.epoch}/{1 if i == 0 else 3}"]
                                                        for i, e in enumerate(history)]  # fmt: skip
    assert len(str(history).splitlines()) == 5 and max(map(len, str(history).splitlines())) < 80
    assert history.as_dicts()[-1]["target"] == history[-1].target == pytest.approx(0.6)


def test_the_history_has_the_means_of_an_epoch(small_net: nn.Module, squares_loader: Batches) -> None:
    seen: list[Progress] = []
    history = sanp.pretrain(small_net, squares_loader, epochs=2, progress=False, on_step=seen.append)
    assert len(seen) == 16 and len(history) == 2
    assert history[1].loss == pytest.approx(sum(step.loss for step in seen[8:]) / 8)
    assert history[1].accuracy == pytest.approx(sum(step.accuracy or 0 for step in seen[8:]) / 8)
    assert history[1].kept is None


def test_nothing_is_shown_if_it_is_not_wanted(
    small_net: nn.Module, squares_loader: Batches, capsys: pytest.CaptureFixture[str]
) -> None:
    sanp.pretrain(small_net, squares_loader, epochs=1, progress=False)
    sanp.evaluate(small_net, squares_loader, progress=False)
    assert capsys.readouterr() == ("", "")


def test_without_rich_the_lines_are_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shown, "is_installed", lambda package: False)
    with Display({"joint": 2}) as display:
        display(progress())
    assert capsys.readouterr().err.splitlines()[0].split()[:2] == ["stage", "epoch"]


def test_an_evaluation_says_how_far_it_is_after_a_second_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out, now = Terminal(), iter([0.0, 0.5, 2.0, 3.0])
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(now))
    assert list(counted([1, 2, 3], "evaluating")) == [1, 2, 3]
    lines = [line for line in out.getvalue().split("\r") if line.strip()]
    assert [line.strip() for line in lines] == [
        "evaluating: batch 2 of 3, 0:01 left",
        "evaluating: batch 3 of 3, 0:00 left",
    ]
    assert out.getvalue().endswith("\r")


def test_pretrain_refuses_a_gated_network(small_net: nn.Module, squares_loader: Batches) -> None:
    with pytest.raises(sanp.SanpError, match=r"before sanp\.gate"):
        sanp.pretrain(sanp.gate(small_net, torch.zeros(1, 3, 8, 8)), squares_loader)


def test_a_time_is_written_as_a_clock() -> None:
    assert [clock(5), clock(65), clock(3725)] == ["0:05", "1:05", "1:02:05"]

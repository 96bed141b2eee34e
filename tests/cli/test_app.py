import pytest
import torch

import sanp
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "--budget", "35"), "budget '35' cannot be read"),
        (("train", "--budget", "0"), "cannot be read"),
        (("train", "--budget", "150%"), "more than the whole network"),
        (("train", "--backbone", "resnet"), "did you mean resnet18"),
        (("train", "--method", "fbss"), "unknown method 'fbss'"),
        (("train", "--epochs", "many"), "three as 20,1,12"),
        (("train", "--fit.lr", "fast"), "--fit.lr is 'fast': wanted a number"),
        (("train", "--ns.highest", "1"), "settings of method ns, and the method is sanp"),
        (("train", "--spm.per", "pixel"), "choose one of sample, element"),
        (("train", "--recipe", "none.toml"), "cannot read the recipe"),
        (("train", "--resume", "nowhere"), "not a run folder"),
        (("train", "--resume", "nowhere", "--fit.lr", "0.01"), "takes no other option but --threads"),
        (("train", "--resume", "nowhere", "--epochs", "3"), "takes no other option but --threads"),
        (("eval", "nowhere"), "not a run folder"),
        (("data", "get", "cifar11"), "did you mean cifar"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert words in err.replace("\n", " ")
    assert "Traceback" not in err and len(err.strip().splitlines()) == 1


def test_debug_shows_the_traceback(run: Run) -> None:
    with pytest.raises(sanp.SanpError):
        run("--debug", "eval", "nowhere")


def test_version_names_what_a_report_of_a_defect_needs(run: Run) -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith(f"sanp {sanp.__version__}, torch {torch.__version__.partition('+')[0]}")

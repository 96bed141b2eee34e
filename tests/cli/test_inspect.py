"""`sanp inspect`: the table of a network of one's own, and what it says when it gets none."""

import pytest

from tests.cli.conftest import Run

NETWORKS = "tests.gating.test_network"


def test_inspect_prints_the_table_of_a_factory(run: Run) -> None:
    code, out, _ = run("inspect", f"{NETWORKS}:inverted", "--input", "1,3,8,8", "--skip", "project")
    assert code == 0
    assert "project      6 > 3      1.344k  dense: named in skip  expand.0" in out
    assert "SPMs add" in out


def test_several_inputs_are_separated_by_semicolons(run: Run) -> None:
    code, out, _ = run("inspect", f"{NETWORKS}:two_inputs", "--input", "1,3,8,8;1,1,8,8")
    assert code == 0
    assert "b.0" in out


@pytest.mark.parametrize(
    "target, shape, message",
    [
        (NETWORKS, "1,3,8,8", "module:factory"),
        ("tests.no_such_file:inverted", "1,3,8,8", "cannot be imported"),
        (f"{NETWORKS}:inwerted", "1,3,8,8", "did you mean inverted"),
        (f"{NETWORKS}:IMAGE", "1,3,8,8", "is a Tensor"),
        (f"{NETWORKS}:inverted", "1,3,x,8", "sizes with commas"),
        (f"{NETWORKS}:inverted", "1,0,8,8", "sizes with commas"),
        (f"{NETWORKS}:block", "1,3,8,8", "takes num_classes or nothing"),
    ],
)
def test_inspect_says_what_is_wrong(run: Run, target: str, shape: str, message: str) -> None:
    code, _, err = run("inspect", target, "--input", shape)
    assert code == 2
    assert message in " ".join(err.split())

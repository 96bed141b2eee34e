import sanp
from tests.cli.conftest import Run


def test_data_list_names_the_sets(run: Run) -> None:
    code, out, _ = run("data", "list")
    assert code == 0
    assert all(name in out for name in sanp.data.DATASETS)


def test_data_get_of_the_digits_says_where_they_are(run: Run) -> None:
    code, out, _ = run("data", "get", "digits")
    assert code == 0
    assert f"digits: {sanp.data.get('digits')}" in out.replace("\n", "")

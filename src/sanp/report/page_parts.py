"""The files that the report's page and the explorer's page are made of: templates, styles and scripts in ``parts/``."""

from importlib.resources import files


def read_part(name: str) -> str:
    """The text of a file in ``parts/``."""
    return (files("sanp.report") / "parts" / name).read_text(encoding="utf-8")

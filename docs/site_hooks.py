"""What the site needs beyond Markdown: Sphinx's roles in docstrings become code, and links out of docs/ become text."""

import re
from typing import Any

ROLE = re.compile(r":(?:class|func|meth|data|mod|attr):`~?([^`]+)`")
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files that are not pages of the site lose their target."""
    return OUTSIDE.sub(r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """A role that was left in a docstring becomes the code that it names."""
    return re.sub(r":(?:class|func|meth|data|mod|attr):(?=<code>)", "", ROLE.sub(r"<code>\1</code>", html))

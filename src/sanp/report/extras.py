"""Packages that only the report needs: asked for when they are used, with the command that installs them."""

from sanp.checked import is_installed
from sanp.errors import SanpError


def require(extra: str, *packages: str) -> None:
    """An error that says how to install the extra, if one of its packages is missing."""
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        raise SanpError(f"this needs {' and '.join(missing)}, not installed here: pip install 'sanp[{extra}]'")

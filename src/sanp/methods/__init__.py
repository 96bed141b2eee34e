"""Every pruning method, one file each; METHODS is the table of them."""

from sanp.errors import unknown_name
from sanp.methods.method import Method
from sanp.methods.sanp import SANP
from sanp.methods.static import STATIC

METHODS: dict[str, Method] = {
    "sanp": SANP,
    "static": STATIC,
}


def method_named(name: str) -> Method:
    """The method of this name; an unknown one is an error with the nearest names."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


__all__ = ["METHODS", "Method", "method_named"]

"""Networks by name: a backbone, or a network of the user's own as ``module:factory`` or ``timm:NAME``.

Only a name that the user gives on the command line is imported. A run folder or a recipe remembers such a name, but may
come from somebody else: what they name is never imported.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sanp import backbones
from sanp.core.errors import SanpError, shown, unknown_name
from sanp.core.modules import evaluating
from sanp.core.outputs import logits_of

_given: ContextVar[str | None] = ContextVar("given", default=None)


def is_own(name: object) -> bool:
    """Whether a name is that of a network of one's own, ``module:factory`` or ``library:NAME``."""
    return isinstance(name, str) and all(name.partition(":"))


@contextmanager
def given_network(name: str | None) -> Iterator[None]:
    """Inside, ``name``, which the user gave on the command line, may be imported; None allows nothing."""
    token = _given.set(name)
    try:
        yield
    finally:
        _given.reset(token)


class NetworkSize(Protocol):
    """The sizes that a network is built for; data sets and :class:`Inputs` have them."""

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        ...

    @property
    def image_size(self) -> int:
        """The side of an image, in pixels."""
        ...


def build_for(name: str, size: NetworkSize) -> nn.Module:
    """As :func:`build_named`, for the classes and images of a data set."""
    return build_named(name, num_classes=size.num_classes, image_size=size.image_size)


def build_named(name: str, *, num_classes: int, image_size: int) -> nn.Module:
    """A fresh network by the name that a recipe has: a backbone, or the network that the user gave in its place."""
    given = _given.get()
    if not is_own(name):
        if given is not None and given != name:
            raise SanpError(f"--network {given} was given, and this run's network is the backbone {name}: leave it out")
        return backbones.build(name, num_classes=num_classes, image_size=image_size)
    if given is None:
        raise SanpError(
            f"the network is {shown(name)}, and sanp imports no module because a file names it: if you trust that "
            f"module, give --network {name}"
        )
    net = build_own(given, num_classes=num_classes)
    with evaluating(net), torch.no_grad():
        output = logits_of(net(torch.zeros(2, 3, image_size, image_size)))
    if not isinstance(output, Tensor) or output.shape != (2, num_classes):
        found = tuple(output.shape) if isinstance(output, Tensor) else f"a {type(output).__name__}"
        raise SanpError(
            f"{given} gives {found} for two images, and there are {num_classes} classes: let its factory take "
            "num_classes and give logits (N, num_classes)"
        )
    return net


def build_own(name: str, *, num_classes: int | None = None) -> nn.Module:
    """Imports what ``module:factory``, ``timm:NAME``, ``torchvision:NAME`` or ``transformers:NAME`` means and calls it.

    The module may lie in the working directory. The factory is a function or a class; it gets ``num_classes`` if it
    takes an argument of that name, and nothing else. A network that is there already is taken as it is. If the network
    gives logits among other outputs, it is wrapped so that it gives only them.
    """
    if not is_own(name):
        raise SanpError(f"{shown(name)} does not name a network: give module:factory, or timm:NAME")
    library, _, part = name.partition(":")
    try:
        net = LIBRARIES[library](part, num_classes) if library in LIBRARIES else _from_module(name, num_classes)
    except SanpError:
        raise
    except ImportError as error:
        raise SanpError(f"{name} cannot be imported ({error}): install {library}, or go to its folder") from error
    except (Exception, SystemExit) as error:  # a script may end the program when it is imported or called
        raise SanpError(f"{name} cannot be built ({type(error).__name__}: {error})") from error
    if not isinstance(net, nn.Module):
        raise SanpError(f"{name} gives a {type(net).__name__}: give what builds a network")
    return LogitsOnly(net) if library == "transformers" else net


class LogitsOnly(nn.Module):
    """A network that gives the logits of another, without what stands beside them."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:  # (N, 3, H, W) -> (N, classes)
        """The logits of these images."""
        return logits_of(self.net(x))


def _from_module(name: str, num_classes: int | None) -> Any:
    module_name, _, part = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a script may end the program when it is imported or called
        first = module_name.partition(".")[0]
        missing = isinstance(error, ModuleNotFoundError) and error.name == first
        todo = f"go to the folder that holds {first}, or install it" if missing else "mend that module"
        raise SanpError(f"{module_name} cannot be imported ({type(error).__name__}: {error}): {todo}") from error
    factory = getattr(module, part, None)
    if factory is None:
        raise unknown_name(f"name in {module_name}", part, [each for each in vars(module) if not each.startswith("_")])
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory) or isinstance(factory, Tensor):
        raise SanpError(f"{name} is a {type(factory).__name__}: give a function or class that builds a network")
    try:
        return factory(num_classes=num_classes) if num_classes and _takes_classes(factory) else factory()
    except (Exception, SystemExit) as error:  # a script may end the program when it is imported or called
        raise SanpError(
            f"{name} cannot be called ({type(error).__name__}: {error}): write a function that takes num_classes or "
            "nothing, and calls it"
        ) from error


def _takes_classes(factory: Callable[..., Any]) -> bool:
    try:
        return "num_classes" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some built-in callables have no signature
        return False


def _from_timm(name: str, num_classes: int | None) -> Any:
    timm = importlib.import_module("timm")
    return timm.create_model(name, pretrained=False, **({} if num_classes is None else {"num_classes": num_classes}))


def _from_torchvision(name: str, num_classes: int | None) -> Any:
    models = importlib.import_module("torchvision.models")
    return models.get_model(name, weights=None, **({} if num_classes is None else {"num_classes": num_classes}))


def _from_transformers(name: str, num_classes: int | None) -> Any:
    """A classifier by its type (``resnet``), or by the name or folder of a configuration; its weights are random."""
    library = importlib.import_module("transformers")
    labels = {} if num_classes is None else {"num_labels": num_classes}
    if name in library.CONFIG_MAPPING:
        config = library.AutoConfig.for_model(name, **labels)
    elif "/" not in name and not Path(name).is_dir():  # else transformers would look for it in the network
        raise unknown_name("type of network in transformers", name, library.CONFIG_MAPPING)
    else:
        config = library.AutoConfig.from_pretrained(name, trust_remote_code=False, **labels)
    return library.AutoModelForImageClassification.from_config(config, trust_remote_code=False)


LIBRARIES: dict[str, Callable[[str, int | None], Any]] = {
    "timm": _from_timm,
    "torchvision": _from_torchvision,
    "transformers": _from_transformers,
}
"""libraries whose networks have names, with what builds one"""

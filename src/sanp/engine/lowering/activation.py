"""An activation as a program's operators hold it."""

from dataclasses import dataclass

from sanp.engine.lowering.shapes import Floats


@dataclass(frozen=True)
class Activation:
    """A function of every element."""

    kind: str = "none"
    """one of :data:`sanp.engine.names.ACTIVATIONS`"""
    a: float = 0.0
    """the lower bound of ``clip``, the slope of ``leaky`` below zero, the alpha of ``elu``"""
    b: float = 0.0
    """the upper bound of ``clip``"""
    slope: Floats | None = None
    """the slopes of ``prelu`` below zero, one for each channel"""


IDENTITY = Activation()

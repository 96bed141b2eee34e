"""What runs where, and why: printed by ``print(fast.plan)``."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class PlanRow:
    """One operator of the compiled network."""

    layer: str
    where: str
    """``native`` or ``torch``"""
    how: str
    """the algorithm of a convolution, or the operator"""
    why: str = ""
    """for torch, the reason; in an int8 engine, the reason for a convolution in fp32"""
    flops: int = 0
    """multiply-adds of a native convolution or product for one image, with every channel computed"""
    detail: str = ""
    """a convolution's window, and the sizes of what goes in and comes out"""


@dataclass(frozen=True)
class Plan:
    """Every operator in order of execution, and the instruction set of the native part."""

    rows: tuple[PlanRow, ...]
    """a row for each operator"""
    instruction_set: str
    """``avx512``, ``avx2``, ``plain``, or ``none`` if all runs in torch"""
    threads: int
    """that a call uses"""
    native_share: float = 0.0
    """of the multiply-adds of convolutions and linear layers, with every channel computed"""

    precision: str = "fp32"
    """``fp32``, or ``int8`` where convolutions are computed on bytes"""
    int8_instruction_set: str = ""
    """of the convolutions on bytes: ``vnni_vbmi``, ``vnni``, ``avx2`` or ``plain``"""
    notes: tuple[str, ...] = ()
    """what int8 changes, in words"""

    @property
    def native(self) -> bool:
        """Everything runs natively."""
        return all(row.where == "native" for row in self.rows)

    def reasons(self) -> str:
        """Why some of it runs in torch, in one line."""
        return "; ".join(dict.fromkeys(row.why for row in self.rows if row.where == "torch"))

    def __iter__(self) -> Iterator[PlanRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        width = max((len(row.layer) for row in self.rows), default=0)
        lines = [f"{row.layer:<{width}}  {row.where:<6}  {row.how:<14}  {row.why}".rstrip() for row in self.rows]
        share = f"native: {self.native_share:.1%} of the FLOPs"
        on_bytes = f" and {self.int8_instruction_set}" if self.int8_instruction_set else ""
        head = f"{self.precision}, kernels: {self.instruction_set}{on_bytes}, threads: {self.threads}, {share}"
        return "\n".join([head, *self.notes, *lines])

"""A gated network as a text table: each layer with its channels, dense FLOPs, gate, and the gates of its inputs."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sanp.gating.cost import dense_flops
from sanp.gating.flops import human
from sanp.tracing.masks import LIVE, Block, MaskTable
from sanp.tracing.topology import Layer

if TYPE_CHECKING:
    from sanp.gating.network import GatedNetwork


def table(network: "GatedNetwork", width: int = 120) -> str:
    """The network as plain text, with a line for each convolution; two where one would be wider than ``width``."""
    rows = [("layer", "channels", "FLOPs", "gate", "fed by")]
    for layer in network.cost.layers:
        gate = {"gated": "SPM", "follows": "follows its input"}.get(layer.role) or "dense: " + network.skipped.get(
            layer.name, ""
        )
        channels = f"{layer.in_channels} > {layer.out_channels}" + (f" / {layer.groups}" if layer.groups > 1 else "")
        rows.append((layer.name, channels, human(dense_flops(layer)), gate, fed_by(layer, network.cost.topology.masks)))
    lines = _lines(rows, width)
    dense, floor = human(network.dense_flops), human(network.cost.floor_flops)
    total = f"{type(network.net).__name__}: {dense} FLOPs dense, {floor} at the least"
    unknown = network.cost.topology.unknown
    note = [f"live after operators without a rule: {', '.join(sorted(unknown))}"] if unknown else []
    if network.cap is not None:
        note.append(f"no image costs more than {human(network.cap.limit)} FLOPs (max_flops)")
    if network.cost.linears:
        note.append(f"linear layers: {human(network.cost.dense_linear_flops)} FLOPs, not counted above")
    return "\n".join([total, *lines, *note])


def _lines(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """The rows in columns; if they are wider than ``width``, all but the first three cells stand below these."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]
    if max(map(len, lines)) <= width:
        return lines
    found: list[str] = []
    for row in rows:
        found.append("  ".join(cell.ljust(size) for cell, size in zip(row[:3], widths, strict=False)).rstrip())
        found += textwrap.wrap(f"{row[3]}, fed by {row[4]}", width - 4, initial_indent="    ", subsequent_indent="    ")
    return [found[0], *found[2:]]


def fed_by(layer: Layer, masks: MaskTable) -> str:
    """The names of the gates that decide which inputs of a layer are live, joined by +.

    ``masks`` is the table of the layer's mask ids.
    """
    wanted = {int(mask) for mask in layer.inputs if mask != LIVE}
    names: dict[str, None] = {}
    first = masks.width
    for block in reversed(masks.blocks):
        size = masks.gates[block][1] if isinstance(block, str) else len(block.left)
        first -= size
        mine = {mask - first for mask in wanted if first <= mask < first + size}
        if mine and isinstance(block, str):
            names[block] = None
        elif mine and isinstance(block, Block):
            wanted |= {int(side[i]) for i in mine for side in (block.left, block.right)}
    return " + ".join(reversed(names)) or "everything"

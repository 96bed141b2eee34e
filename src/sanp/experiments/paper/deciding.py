"""The FLOPs that deciding what to prune takes, also for older results lines, which do not have them."""

import json
from functools import cache
from typing import Any

import torch

from sanp.backbones import build
from sanp.core.forward_size import check_forward, check_numbers
from sanp.experiments.recipe import make_recipe
from sanp.methods.parts.gating_method import GatingMethod


def deciding_flops(line: dict[str, Any]) -> float | None:
    """Multiply-adds that a network takes for one image to decide; None if the line has neither them nor its settings.

    They follow from the settings alone: a method whose decisions do not depend on the image leaves nothing to decide.
    """
    if "overhead_flops" in line:
        return float(line["overhead_flops"])
    if "config" not in line or "data" not in line["config"]:
        return None
    return _of_settings(json.dumps(line["config"]))


@cache
def _of_settings(config: str) -> float | None:
    recipe = make_recipe(json.loads(config), "a results line")
    method = recipe.pruning_method()
    if not method.sample_adaptive:
        return 0.0
    if not isinstance(method, GatingMethod):
        return None
    shape = (1, 3, recipe.image_size, recipe.image_size)
    # The classifier is not gated, so that the number of classes does not matter.
    network = build(recipe.backbone, num_classes=2, image_size=recipe.image_size)
    check_numbers([shape], "a results line")
    check_forward(network, torch.empty(shape, device="meta"), "a results line")
    gated = method.gate(network, torch.zeros(shape), spm=recipe.spm)
    return float(gated.overhead_flops)

"""Small convolutional networks of transformers, built from a configuration: nothing is downloaded."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ResNet": (
        "ResNet",
        {"embedding_size": 8, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 2, 1, 1], "layer_type": "bottleneck"},
    ),
    "ConvNeXt": ("ConvNext", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}),
    "MobileNetV2": ("MobileNetV2", {"depth_multiplier": 0.25}),
    "RegNet": (
        "RegNet",
        {"embedding_size": 8, "hidden_sizes": [16, 32, 32, 48], "depths": [1, 1, 2, 1], "groups_width": 8},
    ),
    "MobileNetV1": ("MobileNetV1", {"depth_multiplier": 0.25}),
    "BiT": (
        "Bit",
        {"embedding_size": 8, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 2, 1], "num_groups": 4},
    ),
    "ConvNeXtV2": ("ConvNextV2", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}),
    "PoolFormer": ("PoolFormer", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}),
    "HGNetV2": (
        "HGNetV2",
        {
            "embedding_size": 8, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1], "stem_channels": [3, 8, 8],
            "stage_in_channels": [8, 16, 32, 32], "stage_mid_channels": [8, 8, 8, 16],
            "stage_out_channels": [16, 32, 32, 64], "stage_num_blocks": [1, 1, 1, 1],
            "stage_numb_of_layers": [2, 2, 2, 2],
        },
    ),
    "FocalNet": ("FocalNet", {"embed_dim": 12, "depths": [1, 1, 1, 1], "image_size": 64}),
}  # fmt: skip
"""name in the table to the class's prefix and its settings"""


def transformers_network(name: str) -> tuple[Callable[[], nn.Module], Tensor]:
    """How to build one, and an example input."""
    import transformers

    prefix, settings = TRANSFORMERS[name]
    config = getattr(transformers, f"{prefix}Config")(num_labels=5, **settings)
    build: Any = getattr(transformers, f"{prefix}ForImageClassification")
    return lambda: build(config), torch.randn(1, 3, 64, 64)

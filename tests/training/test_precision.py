"""The number format of training follows the processor's instructions, not what oneDNN can emulate."""

from pathlib import Path

import pytest
import torch

from sanp.training import precision

CPU = torch.device("cpu")
FLAGS = Path("/proc/cpuinfo")


@pytest.mark.skipif(
    not precision.X86 or not FLAGS.exists(), reason="reads the flags of an x86 processor as Linux lists them"
)
def test_auto_is_bf16_where_the_processor_lists_it_and_only_there() -> None:
    flags = next(line for line in FLAGS.read_text().splitlines() if line.startswith("flags")).split()
    assert precision.resolve("auto", CPU) == ("bf16" if {"avx512_bf16", "amx_bf16"} & set(flags) else "fp32")


@pytest.mark.parametrize(
    ("x86", "listed", "format"), [(True, False, "fp32"), (True, True, "bf16"), (False, False, "bf16")]
)
def test_what_onednn_supports_on_x86_may_be_emulated(
    x86: bool, listed: bool, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: listed, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    monkeypatch.setattr(precision, "X86", x86)
    assert precision.resolve("auto", CPU) == format

"""Freed memory that is kept: a large tensor made again touches no new page."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from sanp.training.malloc import keep_freed_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(2**24)  # 64 MiB, 16,384 pages: above what the library keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
faults(2)
given_back = faults(5)
assert keep_freed_memory()
faults(20)  # aligned allocations leave slivers between tensors until the thread's cache, seven of a size, is full
print(given_back, faults(5))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is the GNU C library's")
def test_a_large_tensor_made_again_faults_no_page_in() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    given_back, kept = map(int, ran.stdout.split())
    assert given_back >= 5 * 32  # every tensor is new to the process; 32 where the system gives pages of 2 MiB
    assert kept < given_back / 10

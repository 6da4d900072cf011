"""Where to compute."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from newkinds.errors import NewkindsError
from newkinds.training.device import choose_device, choose_workers


def test_a_device_that_is_not_there_is_said() -> None:
    with pytest.raises(NewkindsError, match="'tpu' cannot be used"):
        choose_device("tpu")


def test_a_cpu_needs_its_cores_itself() -> None:
    assert choose_workers(-1, torch.device("cpu")) == 0
    assert choose_workers(3, torch.device("cpu")) == 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_freed_memory_is_used_again() -> None:
    """What the system hands out anew costs a page fault every 4 kB. In a process of its own, as a command has it: what
    other tests have mapped behind the heap would keep it from growing."""
    pytest.importorskip("resource")
    # a freed block may be a few bytes too small for the next one, until its neighbours are free too
    script = """
import resource, torch
from newkinds.process import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def faults_of_a_step():
    before = faults()
    torch.ones(2**25)  # 128 MB, freed at once
    return faults() - before

keep_freed_memory()
print(min(faults_of_a_step() for _ in range(20)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2**25 * 4 / 4096 / 10

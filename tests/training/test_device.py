"""Where to compute."""

from __future__ import annotations

import platform

import pytest
import torch

from newkinds.errors import NewkindsError
from newkinds.process import keep_freed_memory
from newkinds.training.device import choose_device, choose_workers


def test_a_device_that_is_not_there_is_said() -> None:
    with pytest.raises(NewkindsError, match="'tpu' cannot be used"):
        choose_device("tpu")


def test_a_cpu_needs_its_cores_itself() -> None:
    assert choose_workers(-1, torch.device("cpu")) == 0
    assert choose_workers(3, torch.device("cpu")) == 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_freed_memory_is_used_again() -> None:
    """What the system hands out anew costs a page fault every 4 kB."""
    resource = pytest.importorskip("resource")
    keep_freed_memory()

    def faults_of_a_step() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**25)  # 128 MB, freed at once
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    # a freed block may be a few bytes too small for the next one, until its neighbours are free too
    assert min(faults_of_a_step() for _ in range(20)) < 2**25 * 4 / 4096 / 10

"""What suits a command, but not a library that is imported into somebody else's process."""

import ctypes
import os
import platform
import signal
import sys
import warnings


def prepare() -> None:
    """Set up the process of a command, before anything heavy is imported."""
    # threads that spin while they wait starve each other if the cores are shared
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # names of files may hold anything, and Pillow's remarks on odd files are not for the user
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    warnings.filterwarnings("ignore", module="PIL")
    if is_one_of_several():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # remarks for those who write such programs
    keep_freed_memory()


def is_one_of_several() -> bool:
    """Whether torchrun has started several processes."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "1")


def ignore_interrupts() -> None:
    """Ctrl-C does nothing from now on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def keep_freed_memory() -> None:
    """Let the process reuse the memory of one step in the next.

    Else Linux's C library gives large blocks back to the system and gets them again page by page, filled with zeros:
    up to half of the time of a training step on the CPU, which frees all its activations.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of malloc.h
        libc.mallopt(mmap_max, 0)  # no block is one of its own, which is given back when freed
        libc.mallopt(trim_threshold, -1)  # nor is the end of the heap, however large

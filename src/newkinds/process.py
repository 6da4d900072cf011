"""What suits a command, but not a library that is imported into somebody else's process."""

import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

DOWNLOAD = "NEWKINDS_DOWNLOAD"  # 1: weights may be downloaded; 0: do not even ask
CHILD = "NEWKINDS_CHILD"  # 1: another program started this command, reads what it says, and holds its standard input
SIDE_BY_SIDE = "NEWKINDS_SIDE_BY_SIDE"  # how many processes of a command each do work of their own on this machine
END_WITHIN = 15.0  # seconds that a command has to end in good order
_interrupted = False  # whether Ctrl-C was pressed in a command
_may_download = False  # whether this command said so


def prepare(opens_images: bool = True, download: bool = False) -> None:
    """Set up the process of a command, before anything heavy is imported; if it only reads tables, there is less.

    `download`: whether it may download weights that are not on this machine.
    """
    global _may_download
    _may_download = download
    if is_child():
        _watch_parent()
    for stream in (sys.stdout, sys.stderr):  # names of files may hold anything
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if not opens_images:
        gc.disable()  # it would look at every row of a table, of which none is thrown away before the end
        return
    gc.enable()
    import logging

    # threads that spin while they wait starve each other if the cores are shared
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Pillow's remarks on odd files are not for the user
    warnings.filterwarnings("ignore", module="PIL")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    if is_one_of_several():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # remarks for those who write such programs
    keep_freed_memory()


def is_child() -> bool:
    """Whether this command is part of another program, such as the studio, which shows its progress."""
    return os.environ.get(CHILD) == "1"


@cache
def _watch_parent() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the program that started this command closes its standard input, or is gone; then interrupt it, as
    Ctrl-C would."""
    while os.read(0, 1024):
        pass
    _interrupt()


def end_with(parent: "BaseProcess | None") -> None:
    """Interrupt this process, as Ctrl-C would, as soon as the one that started it is gone."""
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: "BaseProcess") -> None:
    parent.join()
    _interrupt()


def _interrupt() -> None:
    if os.name == "posix":  # wakes it from waiting, too
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
    time.sleep(END_WITHIN)
    os._exit(130)


def may_download() -> bool | None:
    """Whether the user said that weights may be downloaded: by --download, or by a variable in scripts and libraries;
    None if nobody has said anything."""
    return True if _may_download else {"1": True, "0": False}.get(os.environ.get(DOWNLOAD, ""))


def is_one_of_several() -> bool:
    """Whether torchrun has started several processes."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "1")


def sharing_machine() -> int:
    """How many processes of one command share the processors of this machine."""
    of_run = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return of_run * int(os.environ.get(SIDE_BY_SIDE, "1"))


def is_first() -> bool:
    """Whether this process speaks for all that torchrun has started."""
    return not is_one_of_several() or os.environ.get("RANK") == "0"


@contextmanager
def one_speaks(patience: float = 20) -> Iterator[None]:
    """While it is open, of several processes only the first says anything.

    What is wrong for all of them ends the first one, with its message and status; torchrun then ends the others.
    One that is still there after `patience` seconds has met something of its own, and says so.
    """
    if is_first():
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            yield
    except (SystemExit, Exception) as error:
        if not isinstance(error, SystemExit) or error.code:
            time.sleep(patience)
        raise


class Interrupts:
    """Whether Ctrl-C was pressed: a library that it meets while it is imported may make another error of it.

    It listens only to a command's, whose process is ours.
    """

    def __init__(self, listen: bool) -> None:
        self.came = False
        self._listens = listen and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._listens:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        global _interrupted
        self.came = _interrupted = True
        signal.default_int_handler(number, frame)

    def ignore(self) -> None:
        """From now on Ctrl-C does nothing."""
        if self._listens:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_if_interrupted() -> None:
    """Long work asks this now and then: Python loses a Ctrl-C that comes while an object is being thrown away."""
    if _interrupted:
        raise KeyboardInterrupt


def keep_freed_memory() -> None:
    """Let the process reuse the memory of one step in the next.

    Else Linux's C library gives large blocks back to the system and gets them again page by page, filled with zeros:
    up to half of the time of a training step on the CPU, which frees all its activations.
    """
    import ctypes
    import platform

    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of malloc.h
        libc.mallopt(mmap_max, 0)  # no block is one of its own, which is given back when freed
        libc.mallopt(trim_threshold, -1)  # nor is the end of the heap, however large

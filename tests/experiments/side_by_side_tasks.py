"""What the tests of `--jobs` let other processes do."""

import os
import time
from pathlib import Path

from newkinds.console import say
from newkinds.errors import Busy, KeptApart, NewkindsError
from newkinds.process import end_if_interrupted


def tell(words: str) -> dict[str, str]:
    """What a task says goes to its log; what is in its environment is its share of the machine."""
    say(words)
    print(words.upper(), flush=True)
    return {name: os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "NEWKINDS_SIDE_BY_SIDE")}


def fail(kind: str) -> None:
    if kind == "die":
        os._exit(9)
    if kind == "busy":
        raise Busy("another process is at it.")
    if kind == "apart":
        raise KeptApart("other code made it.")
    raise NewkindsError("it cannot be done.")


def work_for_ever(sign: Path) -> None:
    """Until it is interrupted: then it cleans up."""
    (sign / f"begun-{os.getpid()}").touch()
    try:
        while True:
            time.sleep(0.02)
            end_if_interrupted()
    finally:
        (sign / f"ended-{os.getpid()}").touch()

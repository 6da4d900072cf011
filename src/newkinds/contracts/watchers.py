"""What every watcher promises."""

from ..training.watching import WATCHERS
from ..verbs.train import train
from .base import AskedPart, contract
from .small import small_training


@contract("watcher", keeper="on_epoch")
def it_looks_on(part: AskedPart) -> None:
    """It looks on while a model trains for two epochs, and is built without arguments."""
    host = AskedPart("method", "simgcd", part.folder)
    train(None, part.folder / "watched", settings=small_training(host), watchers=[WATCHERS[part.name]()])

"""What looks on while a model trains: it is told of every step and every epoch, and changes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import NewkindsError
from ..methods.base import Progress
from ..registry import Registry

STEPS_BETWEEN = 10  # that are shown: a figure of each would make a GPU wait


class Watcher:
    """Looks on while a model trains. A subclass has those of these methods that it needs.

    Of several processes the first alone has watchers. An error of theirs ends the training as any other does.

    >>> class Print(Watcher):
    ...     def on_epoch(self, epoch, row):
    ...         print(epoch, row["loss"])
    >>> newkinds.train("creatures", "runs/a", watchers=[Print()])
    """

    def on_start(self, folder: Path | None, settings: Mapping[str, Any], first_step: int) -> None:
        """Before the first step: the run directory (None: nothing is written) and the settings of training.

        `first_step`: how many were taken before, if a run is resumed.
        """

    def on_step(self, progress: Progress, losses: Mapping[str, Tensor]) -> None:
        """After a step: its losses, which are still on the device."""

    def on_epoch(self, epoch: int, row: Mapping[str, Any]) -> None:
        """After an epoch (0-based): its row of metrics.jsonl."""

    def on_end(self) -> None:
        """After the last epoch, also if an error or Ctrl-C ended the training."""


WATCHERS: Registry[type[Watcher]] = Registry("watcher")


def watchers_called(names: Sequence[str]) -> list[Watcher]:
    """A new watcher of each name (`--log`); a package that one needs is missed at once, not when training begins."""
    return [WATCHERS[name]() for name in names]


class Watchers:
    """Several as one."""

    def __init__(self, every: Sequence[Watcher]) -> None:
        self.every = every

    @contextmanager
    def watch(self, folder: Path | None, settings: Mapping[str, Any], first_step: int) -> Iterator[None]:
        """While it is open, a model trains."""
        started: list[Watcher] = []
        try:
            for watcher in self.every:
                started.append(watcher)
                watcher.on_start(folder, settings, first_step)
            yield
        finally:
            for watcher in started:
                watcher.on_end()

    def step(self, progress: Progress, losses: Mapping[str, Tensor]) -> None:
        for watcher in self.every:
            watcher.on_step(progress, losses)

    def epoch(self, epoch: int, row: Mapping[str, Any]) -> None:
        for watcher in self.every:
            watcher.on_epoch(epoch, row)


@WATCHERS.register("tensorboard")
class TensorBoard(Watcher):
    """Curves for TensorBoard, in the folder `tensorboard` of a run: `tensorboard --logdir runs/`."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise NewkindsError(
                "tensorboard is not installed, which --log tensorboard needs: pip install 'newkinds[tensorboard]'."
            ) from None
        self._open = SummaryWriter

    def on_start(self, folder: Path | None, settings: Mapping[str, Any], first_step: int) -> None:
        where = Path("tensorboard") if folder is None else folder / "tensorboard"
        # what a killed run has written of an epoch that is trained again is not shown
        self._writer = self._open(str(where), purge_step=first_step)
        lines = [f"    {name}: {value}" for name, value in settings.items()]
        self._writer.add_text("settings", "\n".join(lines), first_step)

    def on_step(self, progress: Progress, losses: Mapping[str, Tensor]) -> None:
        if progress.taken % STEPS_BETWEEN == 0:
            for name, value in losses.items():
                self._writer.add_scalar(f"step/{name}", value.item(), progress.taken)

    def on_epoch(self, epoch: int, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            if isinstance(value, (int, float)) and name != "epoch":
                self._writer.add_scalar(f"epoch/{name}", value, epoch)

    def on_end(self) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()

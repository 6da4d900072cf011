"""A run directory that is trained in or has been: its settings, its state of training, what its model says."""

import io
import json
from typing import Any

import torch

from ..errors import NewkindsError
from ..files import json_text, make_folder, remove_leftovers, require_folder
from ..ownership import NotOurs, remove_own_folder
from ..settings import flat
from .config import REGISTRIES, Config, resolve
from .directory import CHECKSUMS, NEXT, RunDirectory
from .records import OutsidePart, Protocol

# settings that may change between two parts of one run, for they do not change its result
# (images that moved are compared with those the run started with; a family only says what the defaults of others are)
FREE_TO_CHANGE = {
    "train.device", "train.workers", "train.micro_batch", "data.root", "data.corrections", "data.more",
    "backbone.family",
}  # fmt: skip
SHOWN = ("report.html", "README.md", "check.csv")  # written in the end, and never read before


class Run(RunDirectory):
    """A run directory with its settings, its model and its state of training.

    >>> run = Run("runs/birds")
    >>> run.config().method["name"]
    """

    def begin(self, config: Config) -> None:
        """Create the folder, or resume in it if it holds the same run; anything else is refused."""
        self.refuse_other_contents()
        self.refuse_other_settings(config)
        make_folder(self.folder)
        remove_leftovers(self.folder)
        if not self.path("config.yaml").is_file() or self.config().as_dict() != config.as_dict():
            self.write("config.yaml", config.as_yaml())

    def refuse_other_contents(self) -> None:
        """A folder in which newkinds has not written yet must be empty, but for hidden files, such as a desktop's.

        In a run, a page that was edited is refused before the work, not when it is to be replaced; other files may lie
        there. So is a place where nothing can be written.
        """
        require_folder(self.folder)
        if self.own.is_kept():
            for name in SHOWN:
                self.own.require(name)
            return
        if not self.folder.is_dir():
            return
        others = sorted(file.name for file in self.folder.iterdir() if not file.name.startswith("."))
        if others and not (others == [CHECKSUMS] and self.own.is_begun()):
            raise NotOurs(
                f"the folder {self.folder} is not empty and holds no run of newkinds: it has {others[0]}"
                f"{f' and {len(others) - 1} more' if len(others) > 1 else ''}. To be safe, choose another --out."
            )

    def config(self) -> Config:
        """The settings the run was started with."""
        self.require_format()
        settings = self.settings()
        try:
            return resolve(settings)
        except NewkindsError:
            self._require_parts()
            raise

    def _require_parts(self) -> None:
        """Say which plugin or package is missing. A run never loads code by itself: it may come from a stranger."""
        for section, part in self.missing_parts().items():
            needs = f"this run needs the {REGISTRIES[section].kind} '{part.name}' from {part.origin}"
            raise NewkindsError(f"{needs}: {part.how_to_load}.") from None

    def missing_parts(self) -> dict[str, OutsidePart]:
        """Section → part of a plugin or another package that is not there."""
        record = Protocol.find(self)
        outside = {} if record is None else record.outside
        known = {section: part for section, part in outside.items() if section in REGISTRIES}
        return {section: part for section, part in known.items() if part.name not in REGISTRIES[section]}

    def settings_as_written(self) -> dict[str, Any]:
        """Those of `config()`; if a part of them is not there, as the file has them."""
        return self.settings() if self.missing_parts() else self.config().as_dict()

    def protocol(self) -> Protocol:
        """What was written down when training began, see `protocol.record_protocol`."""
        return Protocol.read(self)

    def has_settings(self, config: Config) -> bool:
        """Whether it was begun with these settings."""
        try:
            self.refuse_other_settings(config)
        except NewkindsError:
            return False
        return self.path("config.yaml").is_file()

    def next_for(self, config: Config) -> "Run":
        """Where a result that is to replace the present one is written; what was begun with these settings goes on."""
        following = Run(self.path(NEXT))
        if not following.has_settings(config):
            self.drop_next()
        return following

    def drop_next(self) -> None:
        """Throw a result away that was begun to replace the present one."""
        remove_own_folder(self.path(NEXT))

    def refuse_other_settings(self, config: Config) -> None:
        """What is there already must be the same run."""
        for name, (there, here) in self.differing_settings(config).items():
            raise NewkindsError(
                f"{self.folder} holds a run with other settings ({name} is {there!r} there and "
                f"{here!r} here): choose another --out, or delete the folder to start again."
            )

    def differing_settings(self, config: Config) -> dict[str, tuple[Any, Any]]:
        """Name → its value there, and here; only of settings that change a result. None if nothing is there."""
        if not self.path("config.yaml").is_file():
            return {}
        there, here = flat(self.config().as_dict()), flat(config.as_dict())
        changed = [name for name in here if here[name] != there.get(name) and name not in FREE_TO_CHANGE]
        return {name: (there.get(name), here[name]) for name in changed}

    def save_state(self, state: dict[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.write(self.state_file.name, buffer.getvalue())

    def load_state(self) -> dict[str, Any] | None:
        """The last complete epoch, or None at the very beginning."""
        if not self.state_file.is_file():
            return None
        file = self.verified(self.state_file.name)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:
            raise NewkindsError(
                f"{self.state_file} is damaged ({type(error).__name__}): delete it to train from the beginning."
            ) from None

    def metrics(self) -> list[dict[str, Any]]:
        """One row per epoch."""
        file = self.verified("metrics.jsonl")
        if not file.is_file():
            return []
        rows: list[dict[str, Any]] = []
        try:
            for line in file.read_text(encoding="utf-8").splitlines():
                rows.append(dict(json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            damage = f"{file} line {len(rows) + 1} is damaged"
            raise NewkindsError(f"{damage}: restore it from a copy, or delete the run to start again.") from None
        return rows

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        file = self.path("metrics.jsonl")
        self.write(file.name, "".join(json_text(row, file) + "\n" for row in rows))

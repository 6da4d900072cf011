"""The run directory: the only file format. Every file in it is written whole or not at all."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from ..console import warn
from ..errors import NewkindsError
from ..files import append_line, checksum, csv_text, encoded, json_text, make_folder, remove_leftovers, write_whole
from ..settings import flat, read_recipe
from ..text import unescaped
from .config import REGISTRIES, Config, resolve

# settings that may change between two parts of one run, for they do not change its result
# (images that moved are compared with those the run started with)
FREE_TO_CHANGE = {"train.device", "train.workers", "data.root"}
CHECKSUMS = "checksums.txt"
OURS = (CHECKSUMS, "plan.json", "recipe.yaml", "plan")  # what may lie in a folder before there is a run
EDITABLE = ("categories.json",)  # people give categories their names
# methods that had a switch published_… for each thing that as_published stands for now
ONCE_SWITCHED = ("cms", "gcd", "legogcd", "selex")


class Run:
    """Where a run keeps its files.

    >>> run = Run("runs/birds")
    >>> run.config().method["name"]
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.model_file, self.state_file = self.path("model.safetensors"), self.path("train_state.pt")
        self._intact: dict[str, tuple[int, int, int]] = {}  # files whose checksum was right, as they were then

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file whole. Its checksum is noted before: a kill in between leaves the old file, and its checksum."""
        data = encoded(content)
        if name not in EDITABLE:
            append_line(self.path(CHECKSUMS), f"{checksum(data)}  {name}")
        write_whole(self.path(name), data)

    def verified(self, name: str) -> Path:
        """Where a file is, after its checksum was verified; files of version 0.1 have none."""
        file = self.path(name)
        if not file.is_file():
            return file
        seen = file.stat()
        stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if self._intact.get(name) == stamp:  # a model is asked for several times, and large
            return file
        known = self._checksums().get(name)
        if known and checksum(file) not in known:
            raise NewkindsError(
                f"{file} is damaged or was changed by hand: its checksum is not in {CHECKSUMS}. Restore it from a copy"
                + ("" if name == "config.yaml" else ", or delete it and rerun the command that made the run")
                + f". To keep a change that you made yourself, delete the lines about {name} in {CHECKSUMS}."
            )
        self._intact[name] = stamp
        return file

    def own_files(self) -> list[Path]:
        """What the run consists of; other files may lie in its folder."""
        names = ("config.yaml", "model.safetensors", "assignments.csv", CHECKSUMS, *EDITABLE, *self._checksums())
        return list(map(self.path, names))

    def _checksums(self) -> dict[str, set[str]]:
        """Those of each file that was ever written here."""
        known: dict[str, set[str]] = {}
        if self.path(CHECKSUMS).is_file():
            for line in self.path(CHECKSUMS).read_text(encoding="utf-8", errors="replace").split("\n"):
                digest, _, name = line.partition("  ")
                if name:
                    known.setdefault(name, set()).add(digest)
            if not known:
                warn(f"{self.path(CHECKSUMS)} is damaged: the files beside it cannot be verified.")
        return known

    def begin(self, config: Config) -> None:
        """Create the folder, or resume in it if it holds the same run; anything else is refused."""
        self.refuse_other_contents()
        self.refuse_other_settings(config)
        make_folder(self.folder)
        remove_leftovers(self.folder)
        self.write("config.yaml", config.as_yaml())

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """One process at a time trains in a folder, which is made for it; a killed one leaves it free."""
        lock = FileLock(make_folder(self.folder) / ".lock")
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            raise NewkindsError(
                f"another process is training in {self.folder}: wait for it, or choose another --out."
            ) from None
        except OSError as error:
            raise NewkindsError(f"cannot write in {self.folder}: {error.strerror or error}.") from error
        with held:
            yield

    def refuse_other_contents(self) -> None:
        """A folder with files in it that are not a run's is somebody else's."""
        if self.path("config.yaml").is_file() or not self.folder.is_dir():
            return
        if any(not file.name.startswith(".") and file.name not in OURS for file in self.folder.iterdir()):
            raise NewkindsError(f"the folder {self.folder} is not empty and holds no run: choose another --out.")

    def config(self) -> Config:
        """The settings the run was started with."""
        file = self.verified("config.yaml")
        if not file.is_file():
            raise NewkindsError(f"{self.folder} is not a run directory: it has no config.yaml.")
        try:
            return resolve({"train": {"cache_views": 0}}, _of_this_version(read_recipe(file), file))
        except NewkindsError:
            self._require_parts()
            raise

    def _require_parts(self) -> None:
        """Say which plugin or package is missing. A run never loads code by itself: it may come from a stranger."""
        record = self.read_json("protocol.json") if self.path("protocol.json").is_file() else {}
        for section, part in record.get("outside", {}).items():
            if part["name"] not in REGISTRIES[section]:
                kind, origin = REGISTRIES[section].kind, part["from"]
                how = f"add --plugin {origin}" if part["checksum"] else "install or import it"
                raise NewkindsError(f"this run needs the {kind} '{part['name']}' from {origin}: {how}.") from None

    def refuse_other_settings(self, config: Config) -> None:
        """What is there already must be the same run."""
        if not self.path("config.yaml").is_file():
            return
        there = flat(self.config().as_dict())
        for name, value in flat(config.as_dict()).items():
            if value != there.get(name) and name not in FREE_TO_CHANGE:
                raise NewkindsError(
                    f"{self.folder} holds a run with other settings ({name} is {there.get(name)!r} there and "
                    f"{value!r} here): choose another --out, or delete the folder to start again."
                )

    def about_model(self) -> dict[str, Any]:
        """What the model's file says about itself: known classes, k, what was chosen; empty before it is there."""
        if not self.model_file.is_file():
            return {}
        try:
            with safe_open(self.verified("model.safetensors"), framework="np") as file:
                return dict(json.loads((file.metadata() or {})["newkinds"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise NewkindsError(f"{self.model_file} is damaged or not a newkinds model: {error}.") from None

    # -- training ------------------------------------------------------------------------------------------

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
        rows = []
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                rows.append(json.loads(line))
            except ValueError:
                raise NewkindsError(f"{file} line {number} is damaged: delete the run to start again.") from None
        return rows

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        file = self.path("metrics.jsonl")
        self.write(file.name, "".join(json_text(row, file) + "\n" for row in rows))

    # -- results -------------------------------------------------------------------------------------------

    def write_table(self, name: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        self.write(name, csv_text(columns, rows))

    def read_table(self, name: str) -> list[dict[str, str]]:
        """The rows of a table that `write_table` wrote."""
        try:
            with open(self.verified(name), encoding="utf-8", newline="") as text:
                rows = list(csv.DictReader(text, strict=True))
            return [{column: unescaped(cell) for column, cell in row.items()} for row in rows]
        except (OSError, ValueError, TypeError, csv.Error) as error:  # a cell too few is None, too many are a list
            raise NewkindsError(f"{self.path(name)} is damaged ({error}): delete it to have it made again.") from None

    def write_json(self, name: str, content: Any) -> None:
        self.write(name, json_text(content, self.path(name), indent=1, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(self.verified(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NewkindsError(f"{self.path(name)} is missing: rerun the command that made the run.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise NewkindsError(
                f"cannot read {self.path(name)} ({error}): restore it from a copy, or delete it and rerun the command "
                "that made the run."
            ) from None


def _of_this_version(settings: dict[str, Any], file: Path) -> dict[str, Any]:
    """The settings of a run that an older version may have written."""
    method = settings.get("method")
    if not isinstance(method, dict) or method.get("name") not in ONCE_SWITCHED:
        return settings
    old = {name: value for name, value in method.items() if name.startswith("published_")}
    if len(set(old.values())) > 1:
        said = f"{file} switches on only some of {', '.join(old)}"
        raise NewkindsError(f"{said}, but there is one switch for all of them now, method.as_published: train again.")
    now = {"as_published" if name in old else name: value for name, value in method.items()}
    return {**settings, "method": now}

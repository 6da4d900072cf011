"""The files of a run directory, which is the only file format. Each is written whole or not at all.

Nothing here needs torch: tables, edits and reports of a finished run are read without it."""

import csv
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import NewkindsError
from ..files import (
    append_line,
    checksum,
    csv_cells,
    csv_text,
    json_text,
    make_folder,
    remove,
    stamp_of,
    sync_folder,
    sync_tree,
    temporary_of,
)
from ..ownership import LOCK, OF_RUN, OwnFiles, hold_lock, remove_own_folder

FORMAT = 2  # of a run directory; written into protocol.json
CHECKSUMS = OF_RUN
EDITS = "edits.jsonl"  # what people corrected; every line has a checksum of its own
EDITS_COUNT = "edits.count"  # how many of them were on the disk
NAMES = "categories.json"
EDITABLE = (NAMES, "recipe.yaml")  # people may change names and settings in them
EARLIER = "earlier"  # the folder of results that others have replaced
NEXT = ".next"  # the folder of a result that is going to replace the present one
JOURNAL = "replacing.json"  # which files that moves and removes, while it does
IMAGES = "images.csv"  # what each image showed when the run started
CORRECTIONS = "corrections.csv"  # of a refined run: every image as people saw it
EVIDENCE = "evidence.csv"  # what the trials of a plan said about held-out images
UPDATES = "updates.json"  # what came later
TUNED = "tuned.json"  # which settings were chosen on labelled images
K_AUTO = "k_auto"  # .json and .png: the estimate behind `--k auto`

OUTLIVE = (CHECKSUMS, JOURNAL, "plan.json", EVIDENCE, "recipe.yaml")  # what belongs to a run whatever its result is
ASSIGNMENTS = "assignments.csv"  # without it there is no answer
# how a run was trained and embedded
TRAINING = ("metrics.jsonl", "timing.json")
# what stays true of a run, whatever becomes of its answer
BEGINNING = (IMAGES, CORRECTIONS, "protocol.json", TUNED, *TRAINING, "skipped.csv", f"{K_AUTO}.json", f"{K_AUTO}.png")
# files that are only ever replaced whole, and large: an earlier result shares them by links
LINKED = (".safetensors", ".pt")


class RunDirectory:
    """Where a run keeps its files.

    >>> RunDirectory("runs/birds").read_json("categories.json")[0]["name"]
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.model_file, self.state_file = self.path("model.safetensors"), self.path("train_state.pt")
        self._intact: dict[str, tuple[int, int, int]] = {}  # files whose checksum was right, as they were then
        self.own = OwnFiles(self.folder, CHECKSUMS)
        self._is_claimed = False
        self._finish_replacing()

    @property
    def home(self) -> Path:
        """Where people look for the run: not the hidden folder in which a result that replaces another is written."""
        return self.folder.parent if self.folder.name == NEXT else self.folder

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file whole, if none is there or newkinds wrote it: see `ownership`.

        Of names that people edited in categories.json, a copy is kept before they are replaced.
        """
        self._keep_edited(name)
        self.own.write(name, content)

    def remove(self, name: str) -> None:
        """Delete a file of the run, if it is there; one that newkinds did not write, or that was edited, is refused."""
        self._keep_edited(name)
        self.own.remove(name)

    def _keep_edited(self, name: str) -> None:
        """Before categories.json goes: a copy of it, if people have edited it."""
        file, number = self.path(name), 1
        if name != NAMES or not file.is_file() or name not in self.own.checksums() or self.own.is_own(name):
            return
        content = file.read_bytes()
        while os.path.lexists(copy := file.with_name(f"{file.stem}-edited-{number}{file.suffix}")):
            number += 1
        self.own.write(copy.name, content)
        self.own.adopt(name, content)

    def verified(self, name: str) -> Path:
        """Where a file is, after its checksum was verified."""
        file = self.path(name)
        if not file.is_file():
            return file
        stamp = stamp_of(file)
        if self._intact.get(name) == stamp:  # a model is asked for several times, and large
            return file
        known = self._checksums().get(name)
        if known and checksum(file) not in known:
            if name in EDITABLE:
                _mention_change(file, stamp)
                return file
            raise NewkindsError(
                f"{file} is damaged or was changed by hand: its checksum is not in {CHECKSUMS}. Restore it from a copy"
                + ("" if name == "config.yaml" else ", or delete it and rerun the command that made the run")
                + f". To keep a change that you made yourself, delete the lines about {name} in {CHECKSUMS}."
            )
        self._intact[name] = stamp
        return file

    def was_written(self, name: str) -> bool:
        """Whether there has been such a file in the run."""
        return name in self.own.checksums()

    def own_files(self) -> list[Path]:
        """What the run consists of; other files may lie in its folder."""
        names = ("config.yaml", "model.safetensors", "assignments.csv", CHECKSUMS, EDITS, *EDITABLE, *self._checksums())
        return list(map(self.path, names))

    # -- one answer after another ---------------------------------------------------------------------------

    @property
    def is_answered(self) -> bool:
        """Whether the images have been assigned."""
        return self.path(ASSIGNMENTS).is_file()

    def copy_from(self, other: "RunDirectory", names: Iterable[str] = BEGINNING) -> None:
        """Copy those of the files that the other run has; each is verified before. Large ones are shared by links."""
        for name in names:
            if other.path(name).is_file():
                file = other.verified(name)
                if file.suffix not in LINKED or not self.own.link(name, file):
                    self.write(name, file.read_bytes())

    def forget_edits(self) -> None:
        """Delete a log of edits that an interrupted attempt has entered into a result that nobody has seen yet."""
        for name in (EDITS, EDITS_COUNT):
            self.path(name).unlink(missing_ok=True)

    def replace_by_next(self) -> None:
        """Put the result in the folder NEXT, which is a whole run, in the place of the present one.

        Nobody sees a mixture: from the moment on that the journal is written, whoever opens the run next finishes what
        a killed process has begun.
        """
        following = RunDirectory(self.path(NEXT))
        names = [str(file.relative_to(following.folder)) for file in following._present_files()]
        arriving = [name for name in names if name != CHECKSUMS]
        present = [str(file.relative_to(self.folder)) for file in self._present_files()]
        leaving = [name for name in present if name not in arriving and name not in OUTLIVE]
        for name in arriving:
            self._keep_edited(name)
            if name not in (EDITS, EDITS_COUNT):
                self.own.require(name)
        append_line(self.path(CHECKSUMS), following.path(CHECKSUMS).read_text(encoding="utf-8").rstrip("\n"))
        self.write_json(JOURNAL, {"arriving": arriving, "leaving": leaving})
        self._finish_replacing()

    def _finish_replacing(self) -> None:
        """What the journal says, as far as it is not done yet."""
        if not self.path(JOURNAL).is_file():
            return
        journal = self.read_json(JOURNAL)
        try:
            for name in _plain_names(journal["leaving"]):
                self.path(name).unlink(missing_ok=True)
            for name in _plain_names(journal["arriving"]):
                with suppress(FileNotFoundError):  # it has arrived
                    os.replace(self.path(NEXT) / name, self.path(name))
            sync_folder(self.folder)
            self.path(JOURNAL).unlink(missing_ok=True)
            remove_own_folder(self.path(NEXT))
        except OSError as error:
            raise NewkindsError(
                f"a new result of {self.folder} was about to take its place, and that cannot be finished: "
                f"{error.strerror or error}. Make the folder writable, and run the command again."
            ) from error
        except (KeyError, TypeError) as error:
            raise NewkindsError(f"{self.path(JOURNAL)} is damaged ({error}): restore the run from a copy.") from None

    def earlier_results(self) -> list[Path]:
        """The results that others have replaced, the oldest first; each is a run directory."""
        folder = self.path(EARLIER)
        inside = folder.iterdir() if folder.is_dir() else ()
        numbered = [entry for entry in inside if entry.name.isascii() and entry.name.isdecimal()]
        return sorted(numbered, key=lambda entry: int(entry.name))

    def next_archive(self) -> str:
        """Where `archive` would keep the present result, below the run."""
        return f"{EARLIER}/{max((int(folder.name) for folder in self.earlier_results()), default=0) + 1}"

    def archive(self) -> Path:
        """Keep the present result as a run directory of its own, in `earlier/1`, `earlier/2` …; where that is.

        It can be read, shown and corrected like any other. Large files take no room until they are replaced here.
        """
        if not self.is_answered:
            raise NewkindsError(f"{self.folder} has no result yet that could be kept.")
        earlier, target = make_folder(self.path(EARLIER)), self.path(self.next_archive())
        building = temporary_of(target)
        try:
            for file in self._present_files():
                _keep(file, building / file.relative_to(self.folder))
            sync_tree(building)
            os.rename(building, target)
        except OSError as error:
            raise NewkindsError(f"cannot keep the earlier result in {target}: {error.strerror or error}.") from error
        finally:
            remove(building)
        sync_folder(earlier)
        return target

    def _present_files(self) -> list[Path]:
        """Those of the run's own files that are there. The count of edits comes before the edits: others may be
        adding, and a count of more than there are would be a warning."""
        known = [self.path(EDITS_COUNT), *self.own_files()]
        inside = [file for file in known if ".." not in file.parts and file.is_relative_to(self.folder)]
        return [file for file in dict.fromkeys(inside) if file.is_file()]

    # -- reading and writing --------------------------------------------------------------------------------

    def _checksums(self) -> dict[str, set[str]]:
        """Those of each file that was ever written here."""
        known = self.own.checksums()
        if not known and self.path(CHECKSUMS).is_file():
            from ..console import warn

            warn(f"{self.path(CHECKSUMS)} is damaged: the files beside it cannot be verified.")
        return known

    def require_format(self) -> None:
        """Refuse a run that another version of newkinds has made, whose files may mean something else."""
        if not self.path("protocol.json").is_file():
            return
        record = self.read_json("protocol.json")
        there = record.get("format") if isinstance(record, dict) else None
        if there != FORMAT:
            raise NewkindsError(
                f"{self.folder} was made by another version of newkinds (its protocol.json does not say format "
                f"{FORMAT}, all that this version reads): use that version, or discover again in another --out."
            )

    def settings(self) -> dict[str, Any]:
        """The settings that the run was started with, as its file has them: nothing is checked or filled in."""
        from ..settings import read_recipe

        file = self.verified("config.yaml")
        if not file.is_file():
            raise NewkindsError(f"{self.folder} is not a run directory: it has no config.yaml.")
        settings = read_recipe(file)
        data = settings.get("data")
        if isinstance(data, dict) and "corrections" in data and (own := self.path("corrections.csv")).is_file():
            data["corrections"] = str(own.resolve())  # the run may have moved since
        return settings

    def about_model(self) -> dict[str, Any]:
        """What the model's file says about itself: known classes, k, what was chosen; empty before it is there."""
        if not self.model_file.is_file():
            return {}
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.verified("model.safetensors"), framework="np") as file:
                return dict(json.loads((file.metadata() or {})["newkinds"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise NewkindsError(f"{self.model_file} is damaged or not a newkinds model: {error}.") from None

    @contextmanager
    def claimed(self, advice: str = "wait for it, or choose another --out") -> Iterator[None]:
        """One process at a time writes a result in a folder, which is made for it; a killed one leaves it free.

        Whoever has claimed it may hand this very object on to others that claim it too.
        """
        if self._is_claimed:
            yield
            return
        with hold_lock(self.path(LOCK), f"another process is training in {self.folder}: {advice}."):
            self._is_claimed = True
            try:
                yield
            finally:
                self._is_claimed = False

    def write_table(self, name: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        self.write(name, csv_text(columns, rows))

    def read_table(self, name: str, wanted: Sequence[str] = ()) -> list[dict[str, str]]:
        """The rows of a table that `write_table` wrote, which must have the `wanted` columns."""
        columns, rows = self.read_rows(name)
        if missing := [column for column in wanted if column not in columns]:
            again = "delete it to have it made again"
            raise NewkindsError(f"{self.path(name)} is damaged (it has no column '{missing[0]}'): {again}.")
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def read_rows(self, name: str) -> tuple[list[str], list[list[str]]]:
        """The columns of a table and its rows, which are as long."""
        try:
            return csv_cells(self.verified(name).read_text(encoding="utf-8-sig"))  # spreadsheets add a BOM
        except (OSError, ValueError, csv.Error) as error:
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


def _plain_names(names: list[str]) -> list[str]:
    """Names of files in a run's folder; a journal may come from a stranger."""
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise KeyError(name)
    return names


def _keep(file: Path, target: Path) -> None:
    """A file under a second name, or a copy if it may be changed in place or cannot be linked."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix in LINKED:
        try:
            os.link(os.path.realpath(file), target)
        except OSError:  # another disk, or one without links
            pass
        else:
            return
    shutil.copy2(file, target)


@cache  # once in a process
def _mention_change(file: Path, stamp: tuple[int, int, int]) -> None:
    """Of a file that people may edit nobody can tell whether they did, or the disk."""
    from ..console import warn

    warn(f"{file} is not as it was written: it was edited by hand, or it is damaged. It is used as it is.")

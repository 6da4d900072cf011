"""Cached tokens: the same training, and files that are never used when they are not whole."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch

import newkinds
from conftest import save_image
from newkinds.data import load_table
from newkinds.data.folder import read_folder
from newkinds.data.loader import FixedViews, StoredBatches
from newkinds.data.table import Table, readable
from newkinds.encoders.backbones import Backbone, build_backbone
from newkinds.errors import NewkindsError
from newkinds.runs.config import resolve
from newkinds.runs.run import Run
from newkinds.training import store as cache_files
from newkinds.training.cache import TokenCache, cached_tokens
from newkinds.training.embedding import embed
from newkinds.training.loop import fit
from newkinds.training.model import build_model
from newkinds.training.store import CacheUnavailable, clear_caches, list_caches
from newkinds.verbs.train import _cached

SMALL = {"name": "creatures", "categories": 4, "per_category": 30}  # two pieces


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "caches"
    monkeypatch.setenv("NEWKINDS_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def table() -> Table:
    return readable(load_table(SMALL), contents=True)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return build_backbone("tiny")


def made(backbone: Backbone, table: Table, views: int = 2, **options: object) -> TokenCache:
    cache = cached_tokens(backbone, table, views, **options)  # type: ignore[arg-type]
    assert cache is not None
    return cache


def files_of(root: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(root.glob("*/view*"))}


class FromPixels:
    """The same fixed views as a cache has, computed anew each time: what training without a cache would see."""

    random_views = 4

    def __init__(self, table: Table, backbone: Backbone) -> None:
        self.table = table
        self.backbone = backbone

    def rows_of(self, table: Table) -> np.ndarray:
        return np.arange(len(table))

    def take(self, rows: np.ndarray, numbers: np.ndarray) -> torch.Tensor:
        views = FixedViews(self.table, self.backbone.preprocessing, 0, rows.tolist(), [[n] for n in numbers.tolist()])
        pixels = torch.cat([view for i in range(len(views)) if isinstance(view := views[i], torch.Tensor)])
        with torch.no_grad():
            return self.backbone.frozen_part(self.backbone.preprocessing.normalise(pixels))

    def holds(self, table: Table) -> bool:
        return False


@pytest.mark.parametrize(("method", "organizer"), [("simgcd", "none"), ("simgcd", "cpf"), ("cms", "patches")])
def test_training_from_a_cache_is_training_on_the_same_views(
    method: str, organizer: str, table: Table, root: Path, tmp_path: Path
) -> None:
    config = resolve(
        {"data": SMALL, "method": {"name": method}, "organizer": {"name": organizer}},
        {"train": {"epochs": 2, "batch_size": 32, "lr": 0.02}},
    )
    features, losses = {}, {}
    for kind in ("pixels", "float32", "float16"):
        model = build_model(config, table.known, 4)
        backbone = model.encoder.backbone
        cache = FromPixels(table, backbone) if kind == "pixels" else made(backbone, table, 4, precision=kind)
        run = Run(tmp_path / kind)
        run.begin(config)
        fit(model, table, config.train, run, cache=cache)
        losses[kind] = [row["loss"] for row in run.metrics()]
        features[kind] = embed(model.encoder, table, model.device).features
    assert losses["float32"] == pytest.approx(losses["pixels"], rel=1e-5)
    torch.testing.assert_close(features["float32"], features["pixels"], rtol=1e-4, atol=1e-4)
    size = features["pixels"].abs().max()
    assert 0 < (features["float16"] - features["pixels"]).abs().max() < 0.01 * size


def test_tokens_are_those_of_the_views_they_stand_for(table: Table, backbone: Backbone, root: Path) -> None:
    cache = made(backbone, table, precision="float32")
    preprocessing = backbone.preprocessing
    row = 70  # in the second piece
    resized = preprocessing.resize(table.open(row))
    rng = np.random.default_rng((0, 2, int((table.contents or [])[row], 16)))
    for number, view in ((0, preprocessing.centre_view(resized)), (2, preprocessing.random_views(resized, 1, rng)[0])):
        tokens = cache.take(cache.rows_of(table)[[row]], np.array([number]))
        with torch.inference_mode():
            expected = backbone.frozen_part(preprocessing.normalise(view[None]))
        torch.testing.assert_close(tokens, expected, rtol=1e-4, atol=1e-5)


def test_a_step_sees_two_different_views_that_depend_on_seed_and_epoch_alone(
    table: Table, backbone: Backbone, root: Path
) -> None:
    class Numbers:
        random_views = 3

        def rows_of(self, table: Table) -> np.ndarray:
            return np.arange(len(table))

        def take(self, rows: np.ndarray, numbers: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(numbers)

    def views(seed: int, epoch: int) -> torch.Tensor:
        batches = StoredBatches(table, Numbers(), 32, seed)
        return torch.stack([batch.inputs.values for batch in batches(epoch)])  # (steps, 2·32)

    seen = views(0, 5)
    first, second = seen.unflatten(1, (2, -1)).unbind(1)
    assert (first != second).all()
    assert set(seen.flatten().tolist()) == {1, 2, 3}  # 0 is for evaluation
    assert seen.equal(views(0, 5))
    assert not seen.equal(views(0, 6))
    assert not seen.equal(views(1, 5))
    batches = StoredBatches(table, Numbers(), 32, 0)
    assert torch.cat([batch.index for batch in batches.of_all_rows(0, 2)]).equal(torch.arange(len(table)))


def test_views_are_added_without_making_the_others_again(table: Table, backbone: Backbone, root: Path) -> None:
    made(backbone, table, 2)
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in root.glob("*/view*.tokens")}
    assert len(before) == 3
    made(backbone, table, 4)
    for file, (time_made, content) in before.items():
        assert (file.stat().st_mtime_ns, file.read_bytes()) == (time_made, content)
    assert len(list(root.glob("*/view*.tokens"))) == 5


def test_it_is_shared_by_what_it_does_not_depend_on_and_by_nothing_else(
    table: Table, backbone: Backbone, root: Path, photos: Path
) -> None:
    made(backbone, table)
    made(backbone, table)
    assert len(list_caches()) == 1
    made(backbone, table, seed=1)
    made(backbone, table, precision="float32")
    made(build_backbone("tiny", train_blocks=0), table)
    made(build_backbone("tiny", image_size=32), table)
    other = build_backbone("tiny")
    with torch.no_grad():
        other.network.cls_token += 1e-3
    made(other, table)
    made(backbone, readable(read_folder(str(photos)), contents=True))
    assert len(list_caches()) == 7


def test_copies_of_an_image_share_their_tokens(tmp_path: Path, backbone: Backbone, root: Path) -> None:
    for name in ("a", "b", "c"):
        save_image(tmp_path / "photos" / "kind" / f"{name}.png")
    shutil.copy(tmp_path / "photos/kind/a.png", tmp_path / "photos/kind/d.png")
    images = readable(read_folder(str(tmp_path / "photos")), contents=True)
    cache = made(backbone, images)
    assert len(cache.views[0]) == 3
    first, second, third, copy = cache.rows_of(images).tolist()
    assert copy == first
    assert {first, second, third} == {0, 1, 2}
    assert cache.holds(images.rows([3, 1]))
    assert not cache.holds(readable(read_folder(str(tmp_path / "photos"))))  # its pixels are not known


@pytest.mark.parametrize("harm", ["flipped bit", "cut short", "no checksums", "torn checksum"])
def test_damage_is_found_and_mended(
    harm: str, table: Table, backbone: Backbone, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(backbone, table)
    whole = files_of(root)
    (tokens,), (sums,) = root.glob("*/view001.tokens"), root.glob("*/view001.crc")
    if harm == "flipped bit":
        content = bytearray(tokens.read_bytes())
        content[-5] ^= 1
        tokens.write_bytes(content)
    elif harm == "cut short":
        os.truncate(tokens, tokens.stat().st_size - 7)
    elif harm == "no checksums":
        sums.unlink()
    else:
        os.truncate(sums, sums.stat().st_size - 3)
    assert cached_tokens(backbone, table, 2, build=False) is None
    capsys.readouterr()
    made(backbone, table)
    assert files_of(root) == whole
    told = capsys.readouterr().err
    assert ("view001.tokens is damaged" in told) == (harm in ("flipped bit", "cut short"))


def test_a_foreign_cache_is_refused(table: Table, backbone: Backbone, root: Path) -> None:
    made(backbone, table, seed=0)
    (mine,) = (folder for folder in root.iterdir() if folder.is_dir())
    made(backbone, table, seed=1)
    (foreign,) = {folder for folder in root.iterdir() if folder.is_dir()} - {mine}
    shutil.rmtree(mine)
    foreign.rename(mine)
    with pytest.raises(NewkindsError, match="not the cache it is named after"):
        made(backbone, table, seed=0)
    (mine / "cache.json").write_text("{")
    again = made(backbone, table, seed=0)
    clear_caches()
    assert np.array_equal(made(backbone, table, seed=0).views[1], again.views[1])


def test_views_that_change_places_are_found_out(table: Table, backbone: Backbone, root: Path) -> None:
    made(backbone, table)
    whole = files_of(root)
    for kind in ("tokens", "crc"):
        (one,), (two,) = root.glob(f"*/view001.{kind}"), root.glob(f"*/view002.{kind}")
        shutil.copy(one, two)
    made(backbone, table)
    assert files_of(root) == whole


def test_order_and_names_of_the_images_do_not_matter(table: Table, backbone: Backbone, root: Path) -> None:
    made(backbone, table)
    backwards = table.rows(range(len(table))[::-1])
    cache = made(backbone, backwards)
    assert len(list_caches()) == 1
    again = made(backbone, table)
    assert np.array_equal(cache.rows_of(backwards), again.rows_of(table)[::-1])


def test_another_architecture_with_the_same_weights_is_another_cache(table: Table, root: Path) -> None:
    backbone = build_backbone("tiny")
    made(backbone, table)
    for block in backbone.network.blocks:
        block.attn.num_heads, block.attn.head_dim, block.attn.scale = 6, 16, 16**-0.5
    made(backbone, table)
    backbone.network.blocks[0].mlp.act = torch.nn.ReLU()
    made(backbone, table)
    assert len(list_caches()) == 3


def test_a_reader_survives_the_mending_of_what_it_reads(table: Table, backbone: Backbone, root: Path) -> None:
    reading = made(backbone, table)
    expected = np.array(reading.views[1])
    (tokens,) = root.glob("*/view001.tokens")
    mapped = tokens.stat().st_ino
    with open(tokens, "r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"\x7f")
    made(backbone, table)
    assert tokens.stat().st_ino != mapped, "a file that is mapped must not be cut: its readers would be killed"
    assert np.array_equal(made(backbone, table).views[1], expected)
    assert reading.views[1].shape == expected.shape
    reading.views[1].sum()


def test_clearing_what_is_being_made_is_refused(table: Table, backbone: Backbone, root: Path) -> None:
    made(backbone, table)
    (entry,) = list_caches()
    with cache_files._lock(entry.key), pytest.raises(NewkindsError, match="being made by another process"):
        clear_caches()
    assert list_caches() == [entry]


def test_a_piece_is_not_added_where_it_does_not_belong(
    table: Table, backbone: Backbone, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = cache_files.Store.append

    def lose_what_was_there(store: cache_files.Store, number: int, piece: int, tokens: np.ndarray) -> None:
        if piece == 1:
            for file in store.folder.glob("view*"):
                os.truncate(file, 0)
        append(store, number, piece, tokens)

    with monkeypatch.context() as patch:
        patch.setattr(cache_files.Store, "append", lose_what_was_there)
        with pytest.raises(CacheUnavailable, match="changed by somebody else"):
            made(backbone, table)


def test_only_our_own_caches_are_listed_and_cleared(
    table: Table, backbone: Backbone, root: Path, tmp_path: Path
) -> None:
    made(backbone, table)
    (entry,) = list_caches()
    outside = tmp_path / "outside"
    shutil.copytree(root / entry.key, outside)
    (root / "0123456789abcdef").symlink_to(outside)
    shutil.copytree(outside, root / "tool")
    for name, content in (("cache.json", '{"count": [], "about": 3}'), ("view000.tokens", "mine"), ("a.txt", "")):
        (root / "fedcba9876543210").mkdir(exist_ok=True)
        (root / "fedcba9876543210" / name).write_text(content)
    (root / entry.key / "view001.png").write_text("somebody else's")
    assert list_caches() == [entry]
    assert clear_caches([entry.key, entry.key]) == [entry]
    assert [file.name for file in (root / entry.key).iterdir()] == ["view001.png"]
    assert len(list(outside.iterdir())) == len(list((root / "tool").iterdir())) == 8
    assert len(list((root / "fedcba9876543210").iterdir())) == 3


def test_one_bad_cache_hides_no_other(table: Table, backbone: Backbone, root: Path) -> None:
    made(backbone, table, about="sound")
    made(backbone, table, about="bad", seed=1)
    (bad,) = [entry.key for entry in list_caches() if entry.about == "bad"]
    (root / bad / "view001.tokens").unlink()
    (root / bad / "view001.tokens").symlink_to("/nonexistent")
    assert {entry.about for entry in list_caches()} == {"sound", "bad"}
    clear_caches([bad])
    assert {entry.about for entry in list_caches()} == {"sound"}


def test_a_refused_cache_can_be_cleared_also_without_its_views(table: Table, backbone: Backbone, root: Path) -> None:
    made(backbone, table)
    (folder,) = (folder for folder in root.iterdir() if folder.is_dir())
    for file in folder.glob("view*"):
        file.unlink()
    (folder / "cache.json").write_text('{"origin": {"images": "others"}}')
    with pytest.raises(NewkindsError, match=f"newkinds cache clear {folder.name} deletes it"):
        made(backbone, table)
    clear_caches([folder.name])
    made(backbone, table)


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_the_list_of_images_is_made_again(table: Table, backbone: Backbone, root: Path, harm: str) -> None:
    made(backbone, table)
    (file,) = root.glob("*/images.txt")
    whole = file.read_text()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(b"\xff\nyy")
    made(backbone, table)
    assert file.read_text() == whole


@pytest.mark.parametrize("description", [None, "{", '{"origin": []}', '{"origin": {"images": "x"}, "count": 3}'])
def test_a_cache_that_does_not_say_what_it_holds_can_be_cleared_and_is_not_read(
    table: Table, backbone: Backbone, root: Path, description: str | None
) -> None:
    made(backbone, table)
    (key,) = [entry.key for entry in list_caches()]
    if description is None:
        (root / key / "cache.json").unlink()
    else:
        (root / key / "cache.json").write_text(description)
    made(backbone, table.rows(range(3)))  # which looks for its images in other caches
    (damaged,) = [entry for entry in list_caches() if entry.key == key]
    assert damaged.origin is None
    assert damaged.about.startswith("damaged")
    assert damaged.bytes > 0
    clear_caches([key])
    assert not (root / key).exists()
    assert len(list_caches()) == 1


def test_a_trained_run_does_without_a_cache_that_is_not_its_own(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "data": {"categories": 4, "per_category": 8},
        "train": {"epochs": 1, "batch_size": 16, "cache_views": 2},
    }
    newkinds.train("creatures", tmp_path / "run", settings=settings)
    (file,) = root.glob("*/cache.json")
    file.write_text('{"origin": {}}')
    newkinds.discover("creatures", tmp_path / "run", settings=settings)
    assert "looked at again instead" in capsys.readouterr().err
    monkeypatch.setenv("NEWKINDS_CACHE", "~nobody-of-this-name/x")
    newkinds.discover("creatures", tmp_path / "run", settings=settings)
    with pytest.raises(NewkindsError, match="no place for a cache"):
        list_caches()


def test_a_changed_image_is_another_cache(
    photos: Path, backbone: Backbone, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(backbone, readable(read_folder(str(photos)), contents=True), about="photos")
    (old,) = list_caches()
    save_image(photos / "loose.png", (1, 2, 3))
    made(backbone, readable(read_folder(str(photos)), contents=True), about="photos")
    said = " ".join(capsys.readouterr().err.split())
    assert f"the cache {old.key} has {old.images - 1} of these {old.images} images" in said
    assert len(list_caches()) == 2


@pytest.mark.parametrize("harm", ["none", "damaged piece", "damaged list", "lost line end", "unreadable"])
def test_what_another_cache_has_is_not_computed_again(
    harm: str, table: Table, backbone: Backbone, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part first, then all: the same tokens as made alone, and only the rest is looked at."""
    made(backbone, table, about="all")
    alone = files_of(root)
    clear_caches()
    part = table.rows(range(0, len(table), 2))
    made(backbone, part, about="part")
    (list_,), (tokens,) = root.glob("*/images.txt"), root.glob("*/view001.tokens")
    if harm == "damaged piece":
        tokens.write_bytes(b"?" + tokens.read_bytes()[1:])
    elif harm == "damaged list":
        list_.write_text("x" + list_.read_text()[1:])
    elif harm == "lost line end":
        list_.write_text(list_.read_text().replace("\n", "", 1))
    elif harm == "unreadable":
        tokens.unlink()
        tokens.mkdir()
    reused = len(part) if harm == "none" else 0
    looked_at = []
    look = FixedViews.__getitem__

    def watched(views: FixedViews, item: int) -> torch.Tensor | str:
        looked_at.append(item)
        return look(views, item)

    monkeypatch.setattr(FixedViews, "__getitem__", watched)
    made(backbone, table, about="all", workers=0)
    assert len(looked_at) == len(set(looked_at)) == len(table) - reused
    (whole,) = [entry for entry in list_caches() if entry.about == "all"]
    for file in sorted((root / whole.key).glob("view*.tokens")):
        both = [np.frombuffer(content, np.float16) for content in (alone[file.name], file.read_bytes())]
        np.testing.assert_allclose(*both, rtol=0, atol=4e-3)  # other batches, other rounding


def test_an_image_that_changes_meanwhile_stops_the_making(photos: Path, backbone: Backbone, root: Path) -> None:
    images = readable(read_folder(str(photos)), contents=True)
    save_image(photos / "loose.png", (1, 2, 3))
    with pytest.raises(NewkindsError, match=r"loose\.png .*shows something else"):
        made(backbone, images)
    assert cached_tokens(backbone, images, 2, build=False) is None


def test_a_full_disk_is_said_before_and_while_writing(
    table: Table, backbone: Backbone, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
        with pytest.raises(CacheUnavailable, match="NEWKINDS_CACHE"):
            made(backbone, table)
    written = []

    def full(handle: int) -> None:
        written.append(handle)
        if len(written) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cache_files.os, "fsync", full)
        with pytest.raises(CacheUnavailable, match="No space left"):
            made(backbone, table)
    assert cached_tokens(backbone, table, 2, build=False) is None
    made(backbone, table)
    mended = files_of(root)
    clear_caches()
    made(backbone, table)
    assert files_of(root) == mended


def test_a_place_that_cannot_be_written_is_said_and_auto_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NEWKINDS_CACHE", str(tmp_path / "file" / "caches"))
    settings = {"data": {"categories": 4, "per_category": 8}, "train": {"epochs": 9, "batch_size": 32}}
    with pytest.raises(NewkindsError, match="cannot write to the cache"):
        newkinds.train("creatures", tmp_path / "a", settings=[settings, {"train": {"cache_views": 2}}])
    assert not (tmp_path / "a").exists()
    newkinds.train("creatures", tmp_path / "b", settings=settings)
    assert "Training goes on without a cache" in capsys.readouterr().err
    assert Run(tmp_path / "b").config().train.cache_views == 0


KILLED = """
import sys
from newkinds.encoders.backbones import build_backbone
from newkinds.training.cache import cached_tokens
from newkinds.data import load_table
from newkinds.data.table import readable
table = readable(load_table({"name": "creatures", "categories": 4, "per_category": 30}), contents=True)
print("ready", flush=True)
sys.stdin.readline()
cached_tokens(build_backbone("tiny"), table, 6)
"""


def maker(root: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "NEWKINDS_CACHE": str(root)}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_killed_while_writing_and_two_at_once(
    table: Table, backbone: Backbone, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = maker(root)
    go(first)
    deadline = time.monotonic() + 60
    while not any(file.stat().st_size for file in root.glob("*/view*.crc")) and time.monotonic() < deadline:
        time.sleep(0.001)
    first.send_signal(signal.SIGKILL)
    first.wait()
    makers = [maker(root), maker(root)]
    for process in makers:
        go(process)
    assert [process.wait(120) for process in makers] == [0, 0]
    made_by_three = files_of(root)
    monkeypatch.setenv("NEWKINDS_CACHE", str(tmp_path / "other"))
    made(backbone, table, 6)
    assert files_of(tmp_path / "other") == made_by_three


def test_runs_say_how_they_saw_their_images_and_go_on_as_they_began(tmp_path: Path, root: Path) -> None:
    settings = {"data": {"categories": 4, "per_category": 8}, "train": {"epochs": 2, "batch_size": 32}}
    newkinds.train("creatures", tmp_path / "short", settings=settings)
    assert Run(tmp_path / "short").config().train.cache_views == 0
    assert not list_caches()
    cached = {"train": {"cache_views": 3}}
    newkinds.train("creatures", tmp_path / "cached", settings=[settings, cached])
    newkinds.train("creatures", tmp_path / "cached", settings=settings)  # auto: as it was begun
    found = newkinds.discover("creatures", tmp_path / "cached", settings=settings)
    assert "3 fixed views of an image, their tokens cached in float16" in (found.run / "README.md").read_text()
    with pytest.raises(NewkindsError, match=r"train\.cache_views"):
        newkinds.train("creatures", tmp_path / "cached", settings=[settings, {"train": {"cache_views": 4}}])
    newkinds.train("creatures", tmp_path / "long", settings=[settings, {"train": {"epochs": 9}}])
    assert Run(tmp_path / "long").config().train.cache_views == 8
    (entry,) = list_caches()
    assert (entry.images, entry.views) == (32, 8)


def test_a_killed_training_on_cached_views_ends_with_the_same_bits(
    tmp_path: Path, root: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    settings = {
        "data": {"categories": 4, "per_category": 8},
        "train": {"epochs": 3, "batch_size": 16, "cache_views": 3},
    }
    newkinds.train("creatures", tmp_path / "whole", organizer="cpf", settings=settings)
    with killed_after_an_epoch():
        newkinds.train("creatures", tmp_path / "killed", organizer="cpf", settings=settings)
    newkinds.train("creatures", tmp_path / "killed", organizer="cpf", settings=settings)
    assert Run(tmp_path / "killed").model_file.read_bytes() == Run(tmp_path / "whole").model_file.read_bytes()


def test_networks_that_do_not_divide_are_told_and_auto_leaves_them_alone(table: Table, root: Path) -> None:
    config = resolve({"data": SMALL, "backbone": {"name": "test_resnet"}, "train": {"epochs": 9}})
    model = build_model(config, table.known, 4, load_weights=False)
    with pytest.raises(NewkindsError, match="ResNet"):
        cached_tokens(model.encoder.backbone, table, 2)
    cache, settled = _cached(model, table, config, torch.device("cpu"), build=True)
    assert cache is None
    assert settled.train.cache_views == 0


@pytest.mark.parametrize("views", [1, -1, 1000, 10**12])
def test_a_number_of_views_that_makes_no_sense(views: int, tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="from 2 to 999"):
        newkinds.train("creatures", tmp_path / "run", settings={"train": {"cache_views": views}})


def test_tokens_too_large_for_half_precision_are_not_kept(table: Table, root: Path) -> None:
    backbone = build_backbone("tiny")
    with torch.no_grad():
        backbone.network.cls_token += 1e6
    with pytest.raises(NewkindsError, match="cache_precision=float32"):
        made(backbone, table)
    made(backbone, table, precision="float32")


def test_listing_and_clearing_from_the_command_line(
    table: Table, backbone: Backbone, root: Path, run_cli: object
) -> None:
    cli = run_cli
    assert "0 cache(s)" in cli("cache", "list")[1]  # type: ignore[operator]
    made(backbone, table, about="birds, tiny")
    made(backbone, table, seed=1)
    (key,) = [entry.key for entry in list_caches() if entry.about]
    status, text, _ = cli("cache", "list")  # type: ignore[operator]
    assert status == 0
    assert "birds, tiny" in text
    assert "2 cache(s)" in text
    assert cli("cache", "clear")[0] == 1  # type: ignore[operator]
    assert cli("cache", "clear", "nothing")[0] == 1  # type: ignore[operator]
    (root / key / "mine.txt").write_text("somebody else's")
    assert cli("cache", "clear", key)[0] == 0  # type: ignore[operator]
    assert [file.name for file in (root / key).iterdir()] == ["mine.txt"]
    assert cli("cache", "clear", "--all")[0] == 0  # type: ignore[operator]
    assert list_caches() == []

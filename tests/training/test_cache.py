"""Cached tokens: those of the views they stand for, each computed once, and never used if they are damaged."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Killed, save_image
from newkinds.data import load_table
from newkinds.data.folder import read_folder
from newkinds.data.loader import FixedViews
from newkinds.data.table import Table, readable
from newkinds.data.views import Preprocessing
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.errors import NewkindsError
from newkinds.training.cache import TokenCache, cached_tokens
from newkinds.training.store import CacheUnavailable, Store, clear_caches, list_caches

SMALL = {"name": "creatures", "categories": 4, "per_category": 17}  # two batches


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


def tokens_in(cache: TokenCache, table: Table) -> torch.Tensor:
    """All that a cache has of a table: (views, n, T, D)."""
    rows = cache.rows_of(table)
    return torch.stack([cache.take(rows, np.full_like(rows, number)) for number in range(cache.random_views + 1)])


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images that are decoded to compute their tokens, if no process does it for us: workers=0."""
    seen: list[str] = []
    look = FixedViews.__getitem__

    def watched(views: FixedViews, item: int) -> torch.Tensor | str:
        seen.append(views.table.paths[views.rows[item]])
        return look(views, item)

    monkeypatch.setattr(FixedViews, "__getitem__", watched)
    return seen


def test_tokens_are_those_of_the_views_they_stand_for(table: Table, backbone: Backbone, caches: Path) -> None:
    cache = made(backbone, table, precision="float32")
    preprocessing = backbone.preprocessing
    row = (table.contents or []).index(max(table.contents or []))  # in the second batch
    resized = preprocessing.resize(table.open(row))
    rng = np.random.default_rng((0, 2, int((table.contents or [])[row], 16)))
    random_view = preprocessing.random_views(resized, ["weak"], rng)[0]
    for number, view in ((0, preprocessing.centre_view(resized)), (2, random_view)):
        tokens = cache.take(cache.rows_of(table)[[row]], np.array([number]))
        with torch.inference_mode():
            expected = backbone.frozen_part(preprocessing.normalise(view[None]))
        torch.testing.assert_close(tokens, expected, rtol=1e-4, atol=1e-5)


def test_views_and_images_are_added_without_making_the_others_again(
    table: Table, backbone: Backbone, caches: Path, looked_at: list[str]
) -> None:
    """Part of the images, then more views, then all images: the same tokens as made at once."""
    at_once = tokens_in(made(backbone, table, 4), table)
    (entry,) = clear_caches()
    part = table.rows(range(0, len(table), 2))
    bytes_used = []
    for images, views in ((part, 2), (part, 4), (table, 4)):
        del looked_at[:]
        cache = made(backbone, images, views, workers=0)
        assert len(looked_at) == 34
        bytes_used.append(list_caches()[0].bytes)
    assert entry.bytes == bytes_used[-1] == 2 * bytes_used[1]
    assert 3 * bytes_used[1] == 5 * bytes_used[0]
    torch.testing.assert_close(tokens_in(cache, table), at_once, rtol=0, atol=4e-3)  # other batches, other rounding
    torch.testing.assert_close(tokens_in(made(backbone, part, 2), part), at_once[:3, ::2], rtol=0, atol=4e-3)


def test_it_is_shared_by_what_it_does_not_depend_on_and_by_nothing_else(
    table: Table, backbone: Backbone, caches: Path, photos: Path
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
    assert len(list_caches()) == 6
    assert max(entry.images for entry in list_caches()) == 68 + 21
    made(backbone, table, 3, seed=2, precision="float32")
    assert len(list_caches()) == 7


def test_a_setting_that_is_added_later_leaves_caches_valid(table: Table, caches: Path, looked_at: list[str]) -> None:
    @dataclass(frozen=True)
    class LaterPreprocessing(Preprocessing):
        resampling: str = "bicubic"

    backbone = build_backbone("tiny")
    made(backbone, table)
    values = asdict(backbone.preprocessing)
    backbone.preprocessing = LaterPreprocessing(**values)
    del looked_at[:]
    made(backbone, table, workers=0)
    assert looked_at == []
    backbone.preprocessing = LaterPreprocessing(**values, resampling="nearest")
    made(backbone, table, workers=0)
    assert len(looked_at) == len(table)
    assert len(list_caches()) == 2


def test_copies_of_an_image_share_their_tokens(tmp_path: Path, backbone: Backbone, caches: Path) -> None:
    for name in ("a", "b", "c"):
        save_image(tmp_path / "photos" / "kind" / f"{name}.png")
    shutil.copy(tmp_path / "photos/kind/a.png", tmp_path / "photos/kind/d.png")
    images = readable(read_folder(str(tmp_path / "photos")), contents=True)
    cache = made(backbone, images)
    assert list_caches()[0].images == 3
    first, second, third, copy = cache.rows_of(images).tolist()
    assert copy == first
    assert {first, second, third} == {0, 1, 2}
    assert cache.holds(images.rows([3, 1]))
    assert not cache.holds(readable(read_folder(str(tmp_path / "photos"))))  # its pixels are not known


def test_order_and_names_of_the_images_do_not_matter(table: Table, backbone: Backbone, caches: Path) -> None:
    backwards = table.rows(range(len(table))[::-1])
    first = tokens_in(made(backbone, backwards), backwards)
    (entry,) = clear_caches()
    again = made(backbone, table)
    assert list_caches() == [entry]
    assert tokens_in(again, table).equal(first.flip(1))
    assert tokens_in(again, backwards).equal(first)


def test_another_architecture_with_the_same_weights_is_another_cache(table: Table, caches: Path) -> None:
    backbone = build_backbone("tiny")
    made(backbone, table)
    for block in backbone.network.blocks:
        block.attn.num_heads, block.attn.head_dim, block.attn.scale = 6, 16, 16**-0.5
    made(backbone, table)
    backbone.network.blocks[0].mlp.act = torch.nn.ReLU()
    made(backbone, table)
    assert len(list_caches()) == 3


@pytest.mark.parametrize("rows", [1, 66])
def test_damage_is_said_and_mended_while_training_reads(
    rows: int, table: Table, backbone: Backbone, caches: Path, capsys: pytest.CaptureFixture[str], looked_at: list[str]
) -> None:
    whole = tokens_in(made(backbone, table), table)
    (file,) = caches.glob("*/rows.tokens")
    content = bytearray(file.read_bytes())
    for row in range(rows):
        content[row * 65 * 96 * 2 + 1] ^= 64
    file.write_bytes(content)
    reading = made(backbone, table, workers=0)
    del looked_at[:]
    capsys.readouterr()
    read = tokens_in(reading, table)
    torch.testing.assert_close(read, whole, rtol=0, atol=4e-3)  # other batches, other rounding
    assert len(looked_at) == rows
    assert "row(s) of the cache" in capsys.readouterr().err
    assert tokens_in(made(backbone, table), table).equal(read)
    assert "damaged" not in capsys.readouterr().err
    assert len(looked_at) == rows


def test_what_somebody_else_mended_is_not_computed_again(
    table: Table, backbone: Backbone, caches: Path, looked_at: list[str]
) -> None:
    one, other = (made(backbone, table, workers=0) for _ in range(2))
    (file,) = caches.glob("*/rows.tokens")
    file.write_bytes(b"?" + file.read_bytes()[1:])
    del looked_at[:]
    mended = tokens_in(one, table)
    assert tokens_in(other, table).equal(mended)
    assert len(looked_at) == 1


def test_a_cache_that_is_cleared_while_it_is_read_is_read_on(table: Table, backbone: Backbone, caches: Path) -> None:
    reading = made(backbone, table)
    clear_caches()
    whole = tokens_in(reading, table)
    assert tokens_in(made(backbone, table), table).equal(whole)


@pytest.mark.parametrize("batches", [0, 1, 4])  # two for each of three views
def test_an_interrupted_cache_ends_with_the_same_bits(
    batches: int, table: Table, backbone: Backbone, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tokens_in(made(backbone, table), table)
    clear_caches()
    append = Store.append
    done: list[int] = []

    def append_and_die(store: Store, contents: list[str], view: int, tokens: np.ndarray) -> None:
        if len(done) == batches:
            raise Killed
        append(store, contents, view, tokens)
        done.append(view)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", append_and_die)
        with pytest.raises(Killed):
            made(backbone, table)
    assert cached_tokens(backbone, table, 2, build=False) is None
    assert tokens_in(made(backbone, table), table).equal(whole)


def test_small_batches_are_written_together_to_the_same_bits(
    table: Table, backbone: Backbone, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    append = Store.append

    def noting(store: Store, contents: list[str], view: int, tokens: np.ndarray) -> None:
        sizes.append(len(contents))
        append(store, contents, view, tokens)

    monkeypatch.setattr(Store, "append", noting)
    monkeypatch.setattr("newkinds.training.cache.WAITING_SECONDS", 3600.0)  # however busy the machine is
    files = []
    for most in (1 << 24, 0):  # bytes that may wait: all in one, or none
        monkeypatch.setattr("newkinds.training.cache.WAITING_BYTES", most)
        store = made(backbone, table, views=0).store
        files.append({file.name: file.read_bytes() for file in store.folder.glob("rows.*")})
        clear_caches()
    assert sizes == [68, 64, 4]
    assert files[0] == files[1]


def test_rows_that_vanish_while_others_are_added_are_noticed(
    table: Table, backbone: Backbone, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Store.append

    def lose_what_was_there(store: Store, contents: list[str], view: int, tokens: np.ndarray) -> None:
        for file in store.folder.glob("rows.*"):
            file.unlink()
        append(store, contents, view, tokens)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", lose_what_was_there)
        with pytest.raises(CacheUnavailable, match="changed meanwhile"):
            made(backbone, table)


def test_a_changed_image_costs_its_own_tokens(
    photos: Path, backbone: Backbone, caches: Path, looked_at: list[str]
) -> None:
    for _ in range(2):
        made(backbone, readable(read_folder(str(photos)), contents=True), workers=0)
    assert len(looked_at) == 21
    save_image(photos / "loose.png", (1, 2, 3))
    made(backbone, readable(read_folder(str(photos)), contents=True), workers=0)
    assert looked_at[21:] == ["loose.png"]
    (entry,) = list_caches()
    assert entry.images == 22


def test_an_image_that_changes_meanwhile_stops_the_making(photos: Path, backbone: Backbone, caches: Path) -> None:
    images = readable(read_folder(str(photos)), contents=True)
    save_image(photos / "loose.png", (1, 2, 3))
    with pytest.raises(NewkindsError, match=r"loose\.png .*shows something else"):
        made(backbone, images)
    assert cached_tokens(backbone, images, 2, build=False) is None


def test_a_disk_that_is_too_small_is_said_before(
    table: Table, backbone: Backbone, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(CacheUnavailable, match="NEWKINDS_CACHE"):
        made(backbone, table)


def test_tokens_too_large_for_half_precision_are_not_kept(table: Table, caches: Path) -> None:
    backbone = build_backbone("tiny")
    with torch.no_grad():
        backbone.network.cls_token += 1e6
    with pytest.raises(NewkindsError, match="cache_precision=float32"):
        made(backbone, table)
    made(backbone, table, precision="float32")

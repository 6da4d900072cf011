"""Generated bad input: whatever a file holds, it is used or refused with a sentence, soon and within the memory.

CI tries a few cases of each kind; `NEWKINDS_FAULTS=long pytest tests/generated` tries thousands, always other ones."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save

from conftest import save_image
from newkinds import NewkindsError
from newkinds.data.csv_list import read_csv
from newkinds.data.images import BadImage, open_image
from newkinds.data.table import readable
from newkinds.data.vectors import open_vectors, read_labels
from newkinds.discovery.categories import Discovery
from newkinds.discovery.editlog import VERSION, _canonical, _check, fingerprint
from newkinds.discovery.edits import JUNK
from newkinds.discovery.export.names import Names
from newkinds.encoders.weights import read_tensors
from newkinds.errors import is_expected, reason_of
from newkinds.files import csv_text
from newkinds.runs.config import resolve
from newkinds.runs.protocol import describe_protocol
from newkinds.runs.run import Run
from newkinds.settings import flat, parse_assignment, read_recipe
from newkinds.text import unescaped

LONG = os.environ.get("NEWKINDS_FAULTS") == "long"
CASES = 200 if LONG else 12
PATIENCE = 10  # seconds
MEMORY = 2**30  # bytes that a case may take
CREATURES = {"data": {"name": "creatures"}}

generated = settings(
    max_examples=CASES, deadline=None, derandomize=not LONG, database=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # the first case that fails is small enough
)  # fmt: skip
odd_text = st.text() | st.sampled_from([
    "../../etc/passwd", "=cmd()", "<script>alert(1)</script>", "\u202egnp.exe", "\udcff.png", "\\xff.png", "a\0b",
    "~nobody/x", "#1", "(junk)", "NUL", "x" * 300, "1e999", "nan", "0x", "9" * 5000, "[" * 2000, "*a", "&a [*a]",
    "!!python/object:os.system",
])  # fmt: skip
number = st.integers(-(10**400), 10**400) | st.integers(-3, 40) | st.floats()
scalar = st.none() | st.booleans() | number | odd_text


def documents(keys: st.SearchStrategy[str] = odd_text) -> st.SearchStrategy[Any]:
    return st.recursive(scalar, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Flipped bits, replaced pieces, a truncated end; or nothing of it."""
    place = st.integers(0, len(content) - 1)

    def flip(changes: list[tuple[int, int]]) -> bytes:
        data = bytearray(content)
        for at, bit in changes:
            data[at] ^= 1 << bit
        return bytes(data)

    return (
        st.lists(st.tuples(place, st.integers(0, 7)), min_size=1, max_size=20).map(flip)
        | place.map(lambda end: content[:end])
        | st.tuples(place, st.binary(max_size=40)).map(lambda c: content[: c[0]] + c[1] + content[c[0] + len(c[1]) :])
        | st.binary(max_size=200)
    )


@contextmanager
def little_memory() -> Iterator[None]:
    """While it is open, no more than MEMORY can be taken in addition to what is used already."""
    status = Path("/proc/self/status")
    if not status.is_file():  # then how much that is cannot be known
        yield
        return
    used = 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmSize"))
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_the_memory_of_a_case_is_limited() -> None:
    def take() -> int:
        return len(bytearray(2 * MEMORY))

    with little_memory(), pytest.raises(MemoryError):
        take()
    assert take() == 2 * MEMORY


@pytest.fixture
def calm(count_cases: Callable[[str, int], None], request: pytest.FixtureRequest) -> Iterator[Any]:
    """`with calm(): …` may raise only what the command line shows as one sentence, soon; the cases are counted."""
    what = "generated " + request.node.name.removeprefix("test_").replace("_", " ")

    def too_long(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"longer than {PATIENCE} s")

    @contextmanager
    def tried() -> Iterator[None]:
        if hasattr(request.function, "hypothesis"):
            count_cases(what, 1)
        signal.alarm(PATIENCE)
        try:
            with little_memory():
                yield
        except Exception as error:
            if isinstance(error, AssertionError | MemoryError) or not is_expected(error):
                raise
            if "allocate" in str(error):  # what torch says
                raise AssertionError("more than the memory that a case may take") from error
            if len(reason_of(error)) > 5000:
                raise AssertionError("an error that fills the screen") from error
        finally:
            signal.alarm(0)

    before = signal.signal(signal.SIGALRM, too_long)
    yield tried
    signal.signal(signal.SIGALRM, before)


@generated
@given(content=damaged(b"train: {epochs: 3, lr: 1e-3}\nk: 5\nmethod: {name: cms}\n"), found=documents())
def test_recipes(content: bytes, found: Any, calm: Any, tmp_path: Path) -> None:
    for text in (content, yaml.safe_dump(found, allow_unicode=True).encode("utf-8", "surrogatepass")):
        (tmp_path / "r.yaml").write_bytes(text)
        with calm():
            resolve(CREATURES, read_recipe(tmp_path / "r.yaml"))


@generated
@given(
    key=st.sampled_from([*flat(resolve(CREATURES).as_dict()), "k", "assigner.name", "train", "train.x.y"]) | odd_text,
    value=scalar.map(str) | documents().map(str),
)
def test_assignments_of_settings(key: str, value: str, calm: Any) -> None:
    with calm():
        resolve(CREATURES, parse_assignment(f"{key}={value}"))


@generated
@given(
    rows=st.lists(st.tuples(odd_text, odd_text), min_size=1, max_size=6),
    content=damaged(b"path,label\na.png,x\nb.png,\n"),
)
def test_lists_of_images(rows: list[tuple[str, str]], content: bytes, calm: Any, tmp_path: Path) -> None:
    text = csv_text(("path", "label"), rows)
    (tmp_path / "ours.csv").write_text(text, encoding="utf-8")
    with calm():
        table = read_csv(tmp_path / "ours.csv")
        assert len(table.paths) + len(table.skipped) == sum(any(row) for row in rows)
        assert set(table.paths) <= {name for path, _ in rows for name in (path, path.strip(), unescaped(path).strip())}
    (tmp_path / "list.csv").write_bytes(content)
    with calm():
        read_csv(tmp_path / "list.csv")


@generated
@given(
    rows=st.lists(st.tuples(number.map(str) | odd_text, odd_text), max_size=6),
    header=st.sampled_from(["row,label", "label", "name,label", "label,row,truth", "label,label", "LABEL;row"])
    | odd_text,
)
def test_labels_of_vectors(rows: list[tuple[str, str]], header: str, calm: Any, tmp_path: Path) -> None:
    lines = [header, *csv_text(("", ""), rows).splitlines()[1:]]
    (tmp_path / "labels.csv").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    with calm():
        found = read_labels(tmp_path / "labels.csv", 5)
        assert len(found.labels) == len(found.names) == 5


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones((4, 3), dtype=np.float32))
    return file.getvalue()


@generated
@given(content=damaged(_npy()))
def test_vectors(content: bytes, calm: Any, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with calm():
        assert np.isfinite(open_vectors(tmp_path / "x.npy")).all()


@pytest.fixture(scope="module")
def tables(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What edits need of a run; without checksums, as a stranger would send it."""
    names = ("assignments.csv", "categories.json", "skipped.csv", "protocol.json", "config.yaml", "metrics.jsonl")
    folder = tmp_path_factory.mktemp("generated")
    for name in names:
        if (trained_run / name).is_file():
            shutil.copy(trained_run / name, folder / name)
    return folder


def is_whole(found: Discovery) -> bool:
    """Every image is in one category, or junk."""
    junk = sum(member.category_id == JUNK for member in found.members)
    return len(found.members) == sum(category.size for category in found.categories) + junk


KINDS = ("rename", "merge", "split", "move", "junk", "accept", "undo", "redo")
places = st.integers(-2, 12) | scalar
images = st.sampled_from(["creature-00000", "creature-00003"]) | odd_text
fields = st.fixed_dictionaries({"edit": st.sampled_from(KINDS) | scalar}, optional={
    "category": places, "into": places, "to": places, "name": scalar, "of": places, "says": scalar,
    "images": st.lists(images | scalar, max_size=3) | scalar, "categories": st.lists(places, max_size=3) | scalar,
    "parts": st.lists(scalar | st.fixed_dictionaries({"id": places, "name": scalar, "images": st.lists(images)})),
})  # fmt: skip


@generated
@given(edits=st.lists(fields, min_size=1, max_size=5))
def test_edits(edits: list[dict[str, Any]], calm: Any, tables: Path) -> None:
    found = Discovery.read(tables)
    paths = [(member.path, member.category_id) for member in found.found_members]
    header = {"n": 0, "edits": VERSION, "of": fingerprint(paths), "at": ""}
    lines, check = [], ""
    for number_, entry in enumerate([header, *edits]):
        line = _canonical({**entry, "n": number_, "after": check})
        check = _check(line)
        lines.append(f'{line[:-1]},"check":"{check}"}}')
    (tables / "edits.jsonl").write_text("\n" + "\n".join(lines))
    try:
        with calm():
            found = Discovery.read(tables)
            assert len(found.log()) == len(edits)
            assert is_whole(found)
    finally:
        (tables / "edits.jsonl").unlink()


@generated
@given(name=odd_text, other=odd_text, image=odd_text)
def test_names(name: str, other: str, image: str, calm: Any, tables: Path, tmp_path: Path) -> None:
    try:
        with calm():
            found = Discovery.read(tables)
            found.rename(0, name)
            found.move([found.members[0].path], other, new=True)
            found.path_of(image)
    finally:
        (tables / "edits.jsonl").unlink(missing_ok=True)
        (tables / "edits.count").unlink(missing_ok=True)
    with calm():
        folder = Names()
        made = [folder.make(wanted) for wanted in (name, other, name.upper(), "..", name)]
        assert len({one.casefold() for one in made}) == 5
        for one in made:
            (tmp_path / one).mkdir()
            (tmp_path / one).rmdir()
            assert (tmp_path / one).parent.samefile((tmp_path / one / "..").parent.parent)


RUN_FILES = ("categories.json", "protocol.json", "assignments.csv", "skipped.csv", "config.yaml", "metrics.jsonl")
KEYS = st.sampled_from(["name", "is_new", "size", "confidence", "exemplars", "images", "weights", "device", "date"])


@generated
@given(which=st.sampled_from(RUN_FILES), document=documents(KEYS), data=st.data())
def test_files_of_a_run(which: str, document: Any, data: Any, calm: Any, tables: Path) -> None:
    file = tables / which
    before = file.read_bytes() if file.is_file() else b'{"epoch": 0}\n'
    as_json = json.dumps(document).encode()
    changed = data.draw(damaged(before) | st.sampled_from([b"\xef\xbb\xbf" + before, as_json, b"[" + as_json + b"]"]))
    file.write_bytes(changed)
    try:
        for read in (Run(tables).protocol, Run(tables).config, Run(tables).metrics):
            with calm():
                read()
        with calm():
            found = Discovery.read(tables)
            assert is_whole(found)
            assert describe_protocol(Run(tables))
    finally:
        file.write_bytes(before)


def _pth() -> bytes:
    file = io.BytesIO()
    torch.save({"model": {"a.weight": torch.ones(3, 2), "b": torch.ones(1)}}, file)
    return file.getvalue()


@generated
@given(
    safe=damaged(save({"a.weight": torch.ones(3, 2), "b": torch.ones(1)})), pickled=damaged(_pth()), header=documents()
)
def test_weight_files(safe: bytes, pickled: bytes, header: Any, calm: Any, tmp_path: Path) -> None:
    text = json.dumps(header).encode()
    made = len(text).to_bytes(8, "little") + text + b"\0" * 24
    for name, content in (("a.safetensors", safe), ("b.pth", pickled), ("c.safetensors", made)):
        (tmp_path / name).write_bytes(content)
        with calm():
            assert all(isinstance(tensor, torch.Tensor) for tensor in read_tensors(tmp_path / name).values())


FORMATS = {
    "PNG": "RGBA",
    "JPEG": "CMYK",
    "GIF": "P",
    "BMP": "RGB",
    "TIFF": "I;16",
    "WEBP": "RGB",
    "PPM": "L",
    "TGA": "RGBA",
}


def _picture(kind: str) -> bytes:
    file = io.BytesIO()
    mode, rng = FORMATS[kind], np.random.default_rng(3)
    grey = Image.fromarray(rng.integers(0, 255, (20, 24), dtype=np.uint16 if mode == "I;16" else np.uint8))
    compressed = {"compression": "tiff_lzw"} if kind == "TIFF" else {}
    (grey if mode == "I;16" else grey.convert(mode)).save(file, kind, **compressed)
    return file.getvalue()


@generated
@given(
    pictures=st.lists(
        st.sampled_from(list(FORMATS)).flatmap(lambda kind: damaged(_picture(kind))), min_size=1, max_size=4
    )
)
def test_images(pictures: list[bytes], calm: Any, tmp_path: Path) -> None:
    save_image(tmp_path / "good.png")
    names = [f"{place}.png" for place in range(len(pictures))]  # decoders go by the content
    for name, content in zip(names, pictures, strict=True):
        (tmp_path / name).write_bytes(content)
        with calm(), suppress(BadImage):
            assert open_image(tmp_path / name).mode == "RGB"
    (tmp_path / "list.csv").write_text("\n".join(["path,label", "good.png,x", *(f"{name}," for name in names)]))
    with calm():
        table = readable(read_csv(tmp_path / "list.csv"), contents=True)
        assert len(table) + len(table.skipped) == 1 + len(names)
        assert "good.png" in table.paths


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "PPM"])
def test_sizes_that_are_only_declared(kind: str, tmp_path: Path) -> None:
    """A few bytes that say 60,000 × 60,000 must not cost 10 GB."""
    huge, small = 60_000, (24, 20)
    widths = {"PNG": ">II", "BMP": "<ii", "GIF": "<HH", "PPM": ""}
    import struct
    import zlib

    content = _picture(kind)
    if kind == "PPM":
        content = content.replace(b"24 20", b"60000 60000")
    else:
        content = content.replace(struct.pack(widths[kind], *small), struct.pack(widths[kind], huge, huge), 1)
    if kind == "PNG":  # its header has a checksum
        content = content[:29] + zlib.crc32(content[12:29]).to_bytes(4, "big") + content[33:]
    (tmp_path / "huge.png").write_bytes(content)
    with pytest.raises(BadImage, match=r"megapixels|too large"):
        open_image(tmp_path / "huge.png")


def test_a_sentence_is_all_that_is_let_through(calm: Any) -> None:
    """The campaign itself can fail."""
    with calm():
        raise NewkindsError("a sentence")
    with pytest.raises(KeyError), calm():
        raise KeyError("a bug")

"""How long exports of many images take: photos are drawn, not taken, and a run of them is made up, not trained.

python benchmarks/export.py                              # 10,000 JPEG files of about 100 kB: about 3 minutes
python benchmarks/export.py --images 1000 --folder /mnt/usb
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from newkinds.discovery.categories import Discovery
from newkinds.discovery.kinds import Member, category_names, category_of
from newkinds.runs.directory import RunDirectory
from newkinds.text import text_table

EXPORTS = [("csv", None), ("folders", "copy"), ("folders", "hardlink"), ("folders", "symlink"), ("coco", "copy"),
           ("fiftyone", "copy"), ("imagefolder", "copy"), ("label-studio", "copy")]  # fmt: skip


def drawn_run(folder: Path, images: int, categories: int) -> Path:
    """Noise as photos: JPEG cannot make it small. They lie in 100 folders, and each file's name is in all of them."""
    rng = np.random.default_rng(0)
    files = []
    for number in range(32):
        file = folder / f"{number}.jpg"
        Image.fromarray(rng.integers(0, 256, (300, 400, 3), dtype=np.uint8)).save(file, quality=75)
        files.append(file.read_bytes())
        file.unlink()
    names, members = category_names([f"kind-{i}" for i in range(categories // 2)], categories), []
    for number in range(images):
        path = f"unlabeled/{number % 100}/{number // 100}.jpg"
        (folder / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "photos" / path).write_bytes(files[number % len(files)])
        c = number % categories
        members.append(Member(path, None, names[c], c >= categories // 2, 0.8, 0.5, c))
    inside = [members[c::categories] for c in range(categories)]
    found = [category_of(c, name, c >= categories // 2, inside[c]) for c, name in enumerate(names)]
    run = RunDirectory(folder / "run")
    run.folder.mkdir()
    run.write("config.yaml", yaml.safe_dump({"data": {"name": "folder", "path": str(folder / "photos")}}))
    Discovery(run.folder, found, members, []).write()
    return run.folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--categories", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=None, help="where to write (default: the system's)")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        run = drawn_run(folder, chosen.images, chosen.categories)
        size = sum(file.stat().st_size for file in (folder / "photos").rglob("*.jpg"))
        for to, files in EXPORTS:
            command = [sys.executable, "-m", "newkinds", "export", str(run), "--to", to, "--out", str(folder / "out")]
            command += ["--files", files] if files else []
            started, before = time.perf_counter(), os.times()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took, after = time.perf_counter() - started, os.times()
            busy = after.children_user + after.children_system - before.children_user - before.children_system
            rows.append([f"{to} {files or ''}".strip(), f"{took:.1f} s", f"{busy:.1f} s"])
            shutil.rmtree(folder / "out", ignore_errors=True)
            (folder / "out").unlink(missing_ok=True)
    print(f"{chosen.images:,} images, {size / 1e6:,.0f} MB, {chosen.categories} categories, with the start of Python\n")
    print(text_table(["export", "time", "of processors"], rows))


if __name__ == "__main__":
    main()

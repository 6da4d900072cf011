"""What one more photo costs in a cached folder, and what it costs to list the caches.

python benchmarks/cache.py                   # 2,000 drawn creatures as PNG files, 8 views, tiny: about 2 minutes
python benchmarks/cache.py --images 200
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from newkinds.data import load_table
from newkinds.data.creatures.drawing import make
from newkinds.data.table import readable
from newkinds.encoders.backbones import build_backbone
from newkinds.training.cache import cached_tokens

VIEWS = 8
LIST = """
import sys
from newkinds.cli import main
main(["cache", "list"])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)  # Linux
"""


def bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def cached(photos: Path) -> float:
    """Seconds to cache the tokens of a folder's images, which are read and hashed before the clock starts."""
    table = readable(load_table({"name": "folder", "path": str(photos)}), contents=True)
    backbone = build_backbone("tiny")
    started = time.perf_counter()
    cached_tokens(backbone, table, VIEWS, workers=0)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    count = parser.parse_args().images
    with tempfile.TemporaryDirectory() as name:
        photos, store = Path(name) / "photos", Path(name) / "cache"
        photos.mkdir()
        os.environ["NEWKINDS_CACHE"] = str(store)
        images = make(categories=2, per_category=count // 2 + 1, seed=0).images
        for row in range(count):
            Image.fromarray(images[row]).save(photos / f"{row:05d}.png")
        first = cached(photos)
        whole = bytes_below(store)
        again = cached(photos)
        Image.fromarray(images[count]).save(photos / "one-more.png")
        one = cached(photos)
        print(f"{count} images, {VIEWS} views: {first:.1f} s, {whole / 1e6:.1f} MB")
        print(f"the same again: {again:.2f} s")
        print(f"one more image: {one:.2f} s, {bytes_below(store) - whole:,} bytes")
        started = time.perf_counter()
        listed = subprocess.run([sys.executable, "-c", LIST], check=True, capture_output=True, text=True)
        print(f"newkinds cache list: {time.perf_counter() - started:.2f} s, {listed.stderr.split()[-2]} kB at its peak")


if __name__ == "__main__":
    main()

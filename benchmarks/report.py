"""Size of the page, and how long it takes to make and to load; and the picture of a page in the README.

    python benchmarks/report.py                              # 10,000 drawn creatures, 200 kinds: about 10 minutes
    python benchmarks/report.py --images 1000 --kinds 20
    python benchmarks/report.py --run runs/photos            # the page of a finished run
    python benchmarks/report.py --picture docs/report.png    # draw, discover, take the picture: about 2 minutes

Loading times and the picture need Chromium with its driver, and Selenium (pip install -e ".[browser]").
"""

import argparse
import io
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import newkinds
from newkinds.data.creatures import drawing
from newkinds.files import write_whole

SIDE = 224  # px of a drawn image
RENDERED = 2  # times
LOADS = 5  # of which the quickest counts: what else the machine does only adds
TIMES = """
const { domContentLoadedEventEnd, loadEventEnd } = performance.getEntriesByType("navigation")[0];
const paint = performance.getEntriesByName("first-contentful-paint")[0];
return JSON.stringify([paint ? paint.startTime : null, domContentLoadedEventEnd, loadEventEnd]);
"""


def draw_photos(folder: Path, kinds: int, per_kind: int, seed: int) -> Path:
    """Creatures as JPEG files: half of the kinds are known, and half of their images lie in a folder of their name."""
    for category, kind in enumerate(drawing.kinds(kinds, seed, "evaluated")):
        for index in range(per_kind):
            labelled = category < kinds // 2 and index % 2 == 0
            file = folder / (kind.name if labelled else "unlabeled") / f"{category:03d}-{index:03d}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            image, _ = drawing.draw_creature(kind, np.random.default_rng([seed, category, index]), SIDE)
            Image.fromarray(image).save(file, quality=92)
    return folder


def browser(width: int, height: int) -> Any:
    """Chromium without a window, driven by Selenium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={width},{height}"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver"))  # else Selenium would look for one to download
    driver = webdriver.Chrome(options=options, service=service)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return driver


def loading_times(page: Path) -> str:
    """Milliseconds until something is shown, until the text is there, until everything is."""
    driver = browser(1400, 1000)
    try:
        measured = []
        for _ in range(LOADS):
            driver.get("about:blank")
            driver.get(page.resolve().as_uri())
            time.sleep(0.5)  # the times are noted after the page is shown
            measured.append([np.nan if t is None else t for t in json.loads(driver.execute_script(TIMES))])
        first, text, everything = np.min(measured, axis=0)
        times = f"first paint {first:.0f} ms, DOMContentLoaded {text:.0f} ms, load {everything:.0f} ms"
        return f"{times} (each the least of {LOADS})"
    finally:
        driver.quit()


def correct(run: Path) -> None:
    """Some edits of each kind, as people make them."""
    found = newkinds.Discovery.read(run)
    new = [category.id for category in found.new if category.size > 20]
    for number in new[:10]:
        found.rename(number, f"kind {number}")
    found.merge(new[10:12])
    found.split(new[12], 2)
    found.accept(category=new[13])
    found.junk(category=new[-1])
    found.move([member.path for member in found.members[:20]], new[14])


def measure(run: Path) -> None:
    """Make the page of a finished run again, as people do: by the command, in a process of its own; and load it."""
    found = newkinds.Discovery.read(run)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "report.html"
        seconds = []
        for _ in range(RENDERED):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-m", "newkinds", "report", run, "--out", file], check=True)
            seconds.append(time.perf_counter() - started)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        filled, edits = sum(c.size > 0 for c in found.categories), len(found.corrections().in_force)
        size, cpu = file.stat().st_size / 1e6, (used.ru_utime + used.ru_stime) / RENDERED
        print(f"{len(found.members):,} images, {filled} categories, {edits} corrections: {size:.1f} MB")
        times = ", ".join(f"{second:.1f}" for second in seconds)
        print(f"newkinds report: {times} s, {cpu:.1f} s of CPU time, at most {used.ru_maxrss / 1e3:.0f} MB of memory")
        try:
            print(loading_times(file))
        except Exception as error:  # Selenium missing, or no browser for it
            print(f"loading not measured: {str(error).splitlines()[0]}")


def take_picture(page: Path, file: Path) -> None:
    """The first screen of a page, in 256 colours, which halves the file."""
    driver = browser(1400, 1240)
    try:
        driver.get(page.resolve().as_uri())
        time.sleep(1)
        png = driver.get_screenshot_as_png()
    finally:
        driver.quit()
    screen, small = Image.open(io.BytesIO(png)).convert("RGB"), io.BytesIO()
    screen.quantize(palette=screen.quantize(256), dither=Image.Dither.FLOYDSTEINBERG).save(small, "PNG", optimize=True)
    write_whole(file, small.getvalue())
    print(f"{file}: {len(small.getvalue()) / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--kinds", type=int, default=200)
    parser.add_argument("--run", type=Path, help="a finished run; nothing is drawn")
    parser.add_argument("--picture", type=Path, help="write this PNG instead of measuring")
    given = parser.parse_args()
    if given.run:
        measure(given.run)
        return
    with tempfile.TemporaryDirectory() as name:
        photos, out = Path(name) / "photos", Path(name) / "run"
        if given.picture:
            draw_photos(photos, kinds=16, per_kind=40, seed=3)
            newkinds.discover(photos, out, k=16, backbone="tiny", time="1m")
            take_picture(out / "report.html", given.picture)
        else:
            draw_photos(photos, given.kinds, given.images // given.kinds, seed=0)
            newkinds.discover(photos, out, k=given.kinds, method="frozen", backbone="tiny")
            correct(out)
            measure(out)


if __name__ == "__main__":
    main()

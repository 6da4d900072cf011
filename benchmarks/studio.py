"""How quick the studio and the command line's corrections are: a run is drawn, not trained; then a real server is asked
by a real client.

    python benchmarks/studio.py                              # 10,000 images in 200 categories: about 3 minutes
    python benchmarks/studio.py --images 2000 --categories 40
    python benchmarks/studio.py --keep runs/drawn            # keep the drawn run, e.g. to look at it in the studio
"""

import argparse
import colorsys
import http.client
import json
import os
import platform
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image
from safetensors.numpy import save

from newkinds.data import load_table
from newkinds.discovery.categories import Discovery
from newkinds.discovery.kinds import Member, category_names, category_of
from newkinds.discovery.split import EMBEDDING
from newkinds.runs.directory import EDITS, EDITS_COUNT, RunDirectory
from newkinds.text import text_table

DIMENSIONS = 192
WRONG = 0.05  # share of the images that the drawn model puts into another category
SIDE = 48  # px of a drawn photo


def draw_photos(folder: Path, images: int, categories: int, seed: int = 0) -> Path:
    """Small PNG files, a colour for each category; those of the first half are known, and half of theirs labelled."""
    rng = np.random.default_rng(seed)
    for number in range(images):
        category = number % categories
        known = category < categories // 2 and (number // categories) % 2 == 0
        file = folder / (f"kind-{category:03d}" if known else "unlabeled") / f"{category:03d}-{number:05d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        colour = np.array(colorsys.hsv_to_rgb(category / categories, 0.4 + 0.5 * (category % 3) / 2, 0.85))
        blocks = np.kron(rng.normal(0, 0.12, (6, 6, 1)), np.ones((SIDE // 6, SIDE // 6, 1))) + colour
        Image.fromarray((blocks.clip(0, 1) * 255).astype(np.uint8)).save(file, compress_level=1)
    return folder


def draw_run(
    out: Path, data: dict[str, object], truth: list[int], known: int, seed: int = 0, wrong: float = WRONG
) -> Path:
    """A run directory as a finished run leaves it, but without a model: a few images are wrongly assigned.

    `truth` is the category of each image of the table that the settings `data` describe; the first `known` have labels.
    """
    rng, table, run = np.random.default_rng(seed), load_table(dict(data)), RunDirectory(out)
    k = max(truth) + 1
    names = category_names([str(name) for name in table.known], k)
    is_wrong = rng.random(len(table)) < wrong
    category = np.where(is_wrong, rng.integers(0, k, len(table)), truth)
    centres = rng.normal(size=(k, DIMENSIONS))
    centres[1::2] = centres[: k // 2 * 2 : 2] + 0.9 * centres[1::2]  # every second one has a near neighbour
    lean = rng.beta(2, 5, (len(table), 1)) * (category != np.array(truth))[:, None]
    rows = (1 - lean) * centres[category] + lean * centres[truth] + rng.normal(size=(len(table), DIMENSIONS))
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    confidence = np.where(is_wrong, rng.uniform(0.2, 0.6, len(table)), rng.beta(8, 2, len(table))).round(4).tolist()
    unlike = rng.gamma(4, 0.12, len(table)).round(3).tolist()
    members = [
        Member(path, label, names[c], c >= known, sure, far, c)
        for path, label, c, sure, far in zip(
            table.paths, table.labels, category.tolist(), confidence, unlike, strict=True
        )
    ]
    inside: list[list[Member]] = [[] for _ in names]
    for member in members:
        inside[member.category_id].append(member)
    out.mkdir(parents=True, exist_ok=True)
    run.write("config.yaml", yaml.safe_dump({"data": data, "organizer": {"name": "none"}}))
    run.write(EMBEDDING, save({"embedding": rows.astype(np.float16)}))
    found = [category_of(number, name, number >= known, inside[number]) for number, name in enumerate(names)]
    Discovery(out, found, members, []).write()
    return out


def draw(folder: Path, images: int, categories: int) -> Path:
    """A run of drawn photos, all below `folder`."""
    photos = draw_photos(folder / "photos", images, categories)
    data: dict[str, object] = {"name": "folder", "path": str(photos.resolve())}
    truth = [int(Path(path).name[:3]) for path in load_table(data).paths]
    return draw_run(folder / "run", data, truth, categories // 2)


class Client:
    """Asks a studio over one connection, as a browser does."""

    def __init__(self, address: str) -> None:
        self.port = int(address.split(":")[2].split("/")[0])
        self.cookie = f"newkinds-studio-{self.port}={address.split('token=')[1]}"
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        headers = {"Cookie": self.cookie, "Content-Type": "application/json"}
        how = "GET" if body is None else "POST"
        self.connection.request(how, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content[:200]!r}")
        return content

    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.ask("/api/state")))


@contextmanager
def served(run: Path) -> Iterator[tuple[Client, float]]:
    """A studio as a process of its own, and how long it took until it answered the first page (s)."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "newkinds", "studio", str(run), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=compiled()) as process:
        assert process.stdout is not None
        said = ""
        while "token=" not in said:
            said = process.stdout.readline()
        client = Client(said.split()[-1])
        client.ask("/")
        yield client, time.perf_counter() - started
        process.terminate()


def compiled() -> dict[str, str]:
    """The environment of a command whose modules are compiled already, as those of an installed package are."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(CODE)}


CODE = Path(tempfile.gettempdir()) / "newkinds-benchmark-code"


def timed(act: Callable[[], Any]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def row(what: str, times: list[float], target: str = "") -> list[str]:
    p50, p95 = np.quantile(times, [0.5, 0.95]) * 1000
    return [what, f"{len(times)}", f"{p50:.0f} ms", f"{p95:.0f} ms", target]


def first_page(client: Client) -> None:
    """All that a browser fetches before the wall stands: the page, its style and scripts, the state."""
    page = client.ask("/").decode()
    names = set(re.findall(r"/static/([\w.]+)", page))
    waiting = list(names)
    while waiting:
        text = client.ask(f"/static/{waiting.pop()}").decode()
        found = {f"{name}.js" for name in re.findall(r'from "\./(\w+)\.js"', text)} - names
        names |= found
        waiting += found
    client.ask("/api/state")


def edits_of(client: Client, count: int, seed: int = 0) -> list[float]:
    """Mixed edits by one window that looks at what it gets: the time from the question to the whole answer."""
    rng, state = random.Random(seed), client.state()
    times = []
    for number in range(count):
        ids = [category["id"] for category in state["categories"] if category["size"]]
        rows = rng.sample(range(state["images"]), 8)
        first, second = rng.sample(ids, 2)
        kinds: list[dict[str, Any]] = [
            {"edit": "rename", "category": first, "name": f"kind {number}"},
            {"edit": "move", "rows": rows, "to": second}, {"edit": "merge", "categories": [first], "into": second},
            {"edit": "junk", "rows": rows}, {"edit": "undo"}, {"edit": "accept", "category": first},
        ]  # fmt: skip
        wanted = {**kinds[number % len(kinds)], "seen": state["revision"], "found": state["found"]}
        started = time.perf_counter()
        answer = client.ask("/api/edit", wanted)
        times.append(time.perf_counter() - started)
        state = json.loads(answer)["state"]
    return times


def commands_of(run: Path, count: int) -> Iterator[tuple[str, list[float], list[float]]]:
    """For each verb the time of each command, on the clock and of the processor."""
    members = RunDirectory(run).read_table("assignments.csv")
    sizes = iter(range(count * 10))
    verbs: dict[str, Callable[[], list[str]]] = {
        "name": lambda: [f"#{next(sizes) % 40}=called {next(sizes)}"],
        "move": lambda: [members[next(sizes)]["path"], "--to", "#50"],
        "merge": lambda: [f"#{60 + next(sizes) % 30}", f"#{100 + next(sizes) % 30}"],
        "undo": list,
    }
    newkinds = str(Path(sys.executable).with_name("newkinds"))

    def call(*arguments: str) -> None:
        subprocess.run([newkinds, *arguments], env=compiled(), capture_output=True, check=True)

    for verb, arguments in verbs.items():
        clock, processor = [], []
        for _ in range(count):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            clock.append(timed(partial(call, verb, str(run), *arguments())))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            if verb == "merge":  # so that there always are two to merge
                call("undo", str(run))
        yield verb, clock, processor


def measure(run: Path, edits: int, commands: int) -> str:
    with served(run):
        pass  # compiles the modules
    with served(run) as (client, start):

        def asked(path: str, values: Iterable[int]) -> list[float]:
            return [timed(partial(client.ask, path.format(value))) for value in values]

        rows = [row("from the command to the first page", [start])]
        rows.append(row("first page and wall", [timed(partial(first_page, client))], "1 s"))
        rows.append(row("wall again", asked("/api/state", range(20))))
        time.sleep(2)  # what is prepared in the background
        ids = [category["id"] for category in client.state()["categories"]]
        rows.append(row("members of a category", asked("/api/members/{}", ids)))
        rows.append(row("nearest categories", asked("/api/nearest/{}", ids)))
        rows.append(row("thumbnail, first time", asked("/thumb/{}.jpg", range(0, len(ids) * 10, 10))))
        rows.append(row("preview of a split", asked("/api/parts/{}", ids[:20])))
        rows.append(row("more like an image", asked("/api/similar/{}", range(50))))
        rows.append(row("map, first time", asked("/api/map", [0])))
        rows.append(row("search", asked("/api/search?q=%23{}+unlike", ids[:50])))
        rows.append(row("what to look at next, 20 images", asked("/api/next", [0, 1])))
        rows.append(row("edit in the studio", edits_of(client, edits), "100 ms"))
    for name in (EDITS, EDITS_COUNT):
        (run / name).unlink()  # the commands begin with what was found
    for verb, clock, processor in commands_of(run, commands):
        rows.append(row(f"newkinds {verb}", clock, "100 ms"))
        rows.append(row(f"newkinds {verb}, processor time", processor))
    return text_table(["", "times", "p50", "p95", "target"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--categories", type=int, default=200)
    parser.add_argument("--edits", type=int, default=200, help="in the studio")
    parser.add_argument("--commands", type=int, default=50, help="of each verb")
    parser.add_argument("--keep", type=Path, help="folder for the drawn photos and run")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.keep or Path(temporary)
        os.environ["NEWKINDS_CACHE"] = str(Path(temporary) / "caches")
        run = folder / "run" if (folder / "run").is_dir() else draw(folder, chosen.images, chosen.categories)
        print(measure(run, chosen.edits, chosen.commands))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"\n{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, load average {load}")


if __name__ == "__main__":
    main()

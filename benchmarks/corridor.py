"""What one `discover` costs: embeddings, images through the backbone, files forced to the disk, seconds; and its bits.

Creatures are drawn into a folder first, as photos would lie there; the caches are empty. For another state of the code,
put its `src` first:

    python benchmarks/corridor.py --again
    PYTHONPATH=../before/src python benchmarks/corridor.py --again

`--again` gives the same command a second time: a finished plan is finished. The digests at the end are those of the
tables and of all tensors of the model: the same ones mean the same bits.
"""

import argparse
import hashlib
import importlib
import json
import os
import pkgutil
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLES = ("assignments.csv", "categories.json")
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=int, default=10, help="of creatures; half of them are known")
    parser.add_argument("--images", type=int, default=12, help="of each kind; half of the known ones' are labelled")
    parser.add_argument("--time", default="30m", help="what discover may take: enough for all that is tried")
    parser.add_argument("--again", action="store_true", help="give the command a second time")
    parser.add_argument("--demo", action="store_true", help="the digest of the demo's runs too")
    parser.add_argument("--json", type=Path, help="keep the figures here")
    given = parser.parse_args()
    figures: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(NEWKINDS_CACHE=f"{scratch}/caches", NEWKINDS_BACKBONE="tiny", NEWKINDS_DOWNLOAD="0")
        import torch

        import newkinds

        torch.set_num_threads(1)
        folder = draw(Path(scratch) / "creatures", given.kinds, given.images)
        counted = count_calls()

        def discover() -> None:
            newkinds.discover(folder, Path(scratch) / "run", time=given.time)

        figures["discover"] = measure(discover, counted)
        figures["its bits"] = digests(Path(scratch) / "run")
        if given.again:
            figures["the same command again"] = measure(discover, counted)
            figures["its bits after that"] = digests(Path(scratch) / "run")
        if given.demo:
            figures["the demo"] = measure(lambda: demo(Path(scratch) / "demo"), counted)
            runs = sorted(file.parent for file in (Path(scratch) / "demo").rglob("assignments.csv"))
            figures["bits of the demo"] = {
                f"{run.relative_to(Path(scratch) / 'demo')}: {name}": value
                for run in runs
                for name, value in digests(run).items()
            }
        print(f"newkinds {newkinds.__version__}")
    for title, values in figures.items():
        print(f"\n| {title} | |\n|---|---:|")
        for name, value in values.items():
            print(f"| {name} | {value} |")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


def draw(folder: Path, kinds: int, images: int) -> Path:
    """A folder as a person would have it: labelled images by class, all others in unlabeled."""
    from newkinds.data import load_table

    table = load_table({"name": "creatures", "categories": kinds, "per_category": images})
    for row, label in enumerate(table.labels):
        file = folder / (label or "unlabeled").replace("/", "-") / f"{row:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        table.open(row).save(file)
    return folder


def demo(folder: Path) -> None:
    from newkinds.cli import main as newkinds_command

    assert newkinds_command(["demo", "--out", str(folder)]) == 0


def count_calls() -> Counter[str]:
    """From here on calls of `embed`, images that enter a backbone, and fsyncs are counted."""
    import torch

    import newkinds
    from newkinds.training import embedding

    counted: Counter[str] = Counter()

    def count(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            counted[what] += 1
            return function(*args, **options)

        return called

    os.fsync = count("fsyncs", os.fsync)
    os.fdatasync = count("fsyncs", os.fdatasync)
    shipped = embedding.embed
    replacement = count("embeddings of a table", shipped)
    for module in pkgutil.walk_packages(newkinds.__path__, "newkinds."):
        if "__main__" not in module.name and "scripts" not in module.name:
            importlib.import_module(module.name)
    for module_of_ours in [m for name, m in sys.modules.items() if name.startswith("newkinds.")]:
        if getattr(module_of_ours, "embed", None) is shipped:
            module_of_ours.embed = replacement  # type: ignore[attr-defined]

    def enters(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if type(module).__name__ in ("PatchEmbed", "HybridEmbed"):  # timm's: where images become tokens
            counted["images through the backbone"] += len(inputs[0])

    torch.nn.modules.module.register_module_forward_pre_hook(enters)
    return counted


def measure(act: Callable[[], None], counted: Counter[str]) -> Figures:
    counted.clear()
    started, before = time.perf_counter(), processor_seconds()
    act()
    return {
        "embeddings of a table": counted["embeddings of a table"],
        "images through the backbone": counted["images through the backbone"],
        "fsyncs": counted["fsyncs"],
        "seconds": round(time.perf_counter() - started, 1),
        "processor seconds": round(processor_seconds() - before, 1),
    }


def processor_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def digests(run: Path) -> Figures:
    """The first digits of the SHA-256 of each table of a run, and of all tensors of its model."""
    from safetensors.numpy import load_file

    found = {name: hashlib.sha256((run / name).read_bytes()).hexdigest()[:16] for name in TABLES}
    if (run / "model.safetensors").is_file():
        tensors = load_file(run / "model.safetensors")
        model = hashlib.sha256()
        for name in sorted(tensors):
            model.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
            model.update(tensors[name].tobytes())
        found["model.safetensors"] = model.hexdigest()[:16]
    if (run / "plan.json").is_file():
        found["chosen"] = json.loads((run / "plan.json").read_text())["chosen"]
    return found


if __name__ == "__main__":
    main()

"""Processor seconds until work begins: importing what a verb needs, and an estimator on a few rows.

    python benchmarks/start.py                    # about a minute
    python benchmarks/start.py --rounds 5         # of which the quickest counts: what else the machine does only adds

Times are also given in those of `import torch` in the same run, which depend little on the machine.
"""

import argparse
import os
import resource
import subprocess
import sys

FIT = """
import numpy as np, newkinds
random = np.random.default_rng(0)
classes, width = 30, 384
truth = np.arange(1140) % classes
scale = np.exp(-np.arange(width) / 60) + 0.02  # few directions hold most of what differs, as in features of a backbone
X = ((0.9 * random.normal(size=(classes, width)))[truth] + random.normal(size=(1140, width))) * scale
y = np.where((truth < classes // 2) & (random.random(1140) < 0.5), truth, -1)
found = newkinds.CategoryDiscovery({categories})
{fit}
"""
CASES = {
    "import torch": "import torch",
    "import timm": "import timm",
    **{
        f"newkinds {verb}": f"import sys; sys.argv[1:] = {verb.split()!r}; from newkinds.__main__ import main; main()"
        for verb in ("--help", "list", "cache list")
    },
    **{
        f"newkinds.{name}": f"import newkinds; newkinds.{name}"
        for name in ("discover", "train", "evaluate", "predict", "count_categories", "check", "report", "figures")
    },
    "newkinds.CategoryDiscovery": FIT.format(categories=30, fit=""),
    "fit, 30 categories": FIT.format(categories=30, fit="found.fit(X, y)"),
    "fit, number of categories unknown": FIT.format(categories=None, fit="found.fit(X, y)"),
}


def processor_seconds(code: str) -> float:
    """Of a Python process that runs the code, with all its threads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    times = {name: min(processor_seconds(code) for _ in range(rounds)) for name, code in CASES.items()}
    print(f"{os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}\n")
    print("| | processor seconds | in those of `import torch` |\n|---|---:|---:|")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} | {seconds / times['import torch']:.2f} |")


if __name__ == "__main__":
    main()

"""The verbs that compare methods."""

import shlex
import sys
from collections.abc import Mapping
from typing import Any

from ..errors import NewkindsError
from ..text import show
from ..verbs.choices import options
from .options import DOWNLOAD, LOG, argument, choices, named_watchers, names, switch, verb
from .parsing import Argument, Joined, whole_number, whole_numbers


def _seeds(help: str) -> Argument:
    return argument("--seeds", "N", help, type=whole_numbers, nargs="+", action=Joined)


def _without_effect(chosen: Mapping[str, Any]) -> list[str]:
    """The options of a run among those that were given, where nothing is run."""
    flags = {name: option.flag or f"--{name.replace('_', '-')}" for name, (_, option) in options().items()}
    of_place = ("data_root", "device", "cache_views")  # they change no result
    return [flag for name, flag in {**flags, "tune": "--tune"}.items() if name in chosen and name not in of_place]


@verb(
    argument("--out", "FOLDER", "where to write (default: newkinds-demo)"),
    switch("--research", "research", "only CPF beside its controls, with all figures"),
    argument("--hosts", "NAMES", "methods, separated by commas, or all (default: simgcd)", type=names),
    _seeds("one run each (default: 0 to 4; for several hosts 0 to 2)"),
    *choices("epochs"),
)
def _demo(**chosen: Any) -> None:
    """See it work on drawn creatures: find the kinds in a partly labelled folder, judged by its hidden truth and beside
    k-means; then train a host alone, with controls and with CPF, in three lines.

    newkinds demo                                     a folder, its page, and how good it is
    newkinds demo --research --seeds 0 1 2            only CPF beside its controls, with all figures
    newkinds demo --research --hosts all --out plug-in     all hosts of the paper, three seeds: the plug-in table
    """
    from ..experiments.demo import demo

    for part in demo(**chosen):
        show(f"{part}\n")


@verb(
    argument("table", "TABLE", "fine, coarse, count, cost; any data: ablation, sensitivity, plugin, all", nargs="?"),
    argument("--out", "FOLDER", "where the runs are, one folder per run"),
    argument("--config", "FILE", "YAML file that says all of this; what is said here wins"),
    argument("--methods", "NAMES", "separated by commas (default: the table's)", type=names),
    argument("--organizers", "NAMES", "with commas: none, patches, cpf … (see docs/reproducibility.md)", type=names),
    argument("--baselines", "NAMES", "with commas, on frozen features: kmeans, pim-whitened …, all, none", type=names),
    argument("--data", "NAMES", "data sets, with commas; for any data also folders and CSV files", type=names),
    _seeds("one run each, with spaces or commas (default: 0)"),
    argument("--against", "NAME", "an organizer, a method or METHOD+ORGANIZER (default: none, the host alone)"),
    switch("--collect", "only_collect", "run nothing: print what is finished (with --seeds, of these alone)"),
    switch("--again", "again", "run again what other code made; what is there is kept in OUT/earlier-code"),
    argument("--style", "STYLE", "markdown (default), latex or csv", choices=("markdown", "latex", "csv")),
    argument("--tune", "A.B=C,D", "choose for each row on labelled images alone: train.lr=0.1,0.3,1", action="append"),
    argument("--jobs", "N", "runs side by side, each in a process of its own (default: 1)", type=whole_number),
    switch("--no-wait", "no_wait", "skip runs that other processes are working on, instead of waiting for them"),
    LOG,
    *choices("epochs", "precision", "deterministic", "cache_views", "backbone", "weights"),
    DOWNLOAD,
    *choices("data_root", "recipe", "device", "settings"),
)
def _bench(config: str | None = None, no_wait: bool = False, **chosen: Any) -> int:
    """Run or resume a grid of methods, organizers and seeds, and print it as a table: one of the paper's
    (all that it reports, ours, gain over the host), or one for your own data; "all" has every system in a small size.
    With two seeds or more each gain has its confidence interval. Second stages start from the runs of their first. The
    ablation and the sensitivity to primitives and heads are also drawn, beside the runs.

    newkinds bench all --out runs/all --data creatures    every system, with and without CPF, in one table
    newkinds bench fine --out runs/fine --data cub --methods simgcd --seeds 0 1 2 --data-root datasets/
    newkinds bench coarse --out runs/coarse --collect --style latex
    newkinds bench ablation --out runs/ablation --data cub --weights dino_vitbase16_pretrain.pth
    newkinds bench ablation --out runs/parts --data creatures --seeds 0 1 2 --epochs 15 --against adapter
    newkinds bench sensitivity --out runs/sizes --data birds/ --set data.known=0.5 --seeds 0 1 2
    newkinds bench plugin --out runs/birds --data birds/ --set data.known=0.5 --organizers none,patches,cpf
    newkinds bench all --out runs/all --data creatures --jobs 2
    newkinds bench --config sweep.yaml --seeds 0 1 2          all that the file says, with these seeds
    """
    from ..console import warn
    from ..experiments.bench import bench
    from ..plugins import load_plugin
    from ..settings import tuned_settings

    if "tune" in chosen:
        chosen["tune"] = tuned_settings(chosen["tune"])
    if no_wait:
        chosen["wait"] = False
    if chosen.get("only_collect") and (ignored := _without_effect(chosen)):
        warn(f"--collect shows what is finished, whatever its settings are: it ignores {', '.join(ignored)}.")
    names_seeds = "seeds" in chosen
    if config is not None:
        from ..experiments.sweep_file import over_sweep, read_sweep

        sweep = read_sweep(config)
        for file in sweep.pop("plugins", []):
            load_plugin(file)
        chosen = over_sweep(sweep, chosen)
        if chosen.get("only_collect") and not names_seeds:
            chosen.pop("seeds", None)  # the file says which to run; what is finished is shown
    missing = [words for name, words in (("table", "TABLE"), ("out", "--out FOLDER")) if name not in chosen]
    if missing:
        raise NewkindsError(f"say {' and '.join(missing)}, or name a file that does: --config FILE.")
    table, out = chosen.pop("table"), chosen.pop("out")
    benched = bench(table, out, **named_watchers(chosen))
    show(benched.text)
    if benched.pictures:
        show(f"drawn in {', '.join(map(str, benched.pictures))}", file=sys.stderr)
    if benched.busy:
        of_what = f"{table} --out {shlex.quote(out)}" if config is None else f"--config {shlex.quote(config)}"
        later = f"newkinds bench {of_what} --collect"
        others = f"{len(benched.busy)} run(s) are other processes' work: {', '.join(benched.busy)}"
        show(f"{others}. Later, the whole table: {later}", file=sys.stderr)
    if benched.kept_apart:
        number = len(benched.kept_apart)
        show(f"{number} requested run(s) of other code are kept apart: --again runs them again", file=sys.stderr)
    if benched.failed:
        show(f"{len(benched.failed)} requested run(s) could not be finished: see above", file=sys.stderr)
    return 1 if benched.failed else 0

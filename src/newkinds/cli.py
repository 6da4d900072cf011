"""The command line. A verb is a function under `@verb(…)`: its docstring is the help, `_data_check` is `newkinds data
check`. What the user leaves out is not passed on, so that defaults are those of the Python function that it calls, with
which torch is imported. Choices of a run, such as --organizer, are declared in `verbs/choices.py`."""

import argparse
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from . import process
from ._version import __version__
from .errors import NewkindsError, reason_of
from .files import csv_text, is_replaceable, json_text, make_folder, refuse_inputs, write_whole
from .text import show
from .verbs.choices import options

ABOUT = "Recognise the known kinds in your images, and discover, count and look at the new ones."
LAYOUT = "photos/ has one folder per known class, and a folder 'unlabeled' (or loose files) for everything else."
GROUPS = {"data": "Manage the benchmark data sets.", "cache": "Manage the cached tokens that --cache-views makes."}

Argument = tuple[str, dict[str, Any]]  # what argparse's add_argument takes


class Verb(NamedTuple):
    run: Callable[..., int | None]  # returns the exit status, if it is not 0
    arguments: tuple[Argument, ...]
    summary: str
    examples: list[str]  # the first is shown by `newkinds --help` too


VERBS: dict[str, Verb] = {}


def verb(*arguments: Argument) -> Callable[..., Any]:
    """Make a function a verb."""

    def add(run: Callable[..., int | None]) -> Callable[..., int | None]:
        summary, _, examples = (inspect.getdoc(run) or "").partition("\n\n")
        VERBS[run.__name__.strip("_").replace("_", " ")] = Verb(run, arguments, summary, examples.splitlines())
        return run

    return add


def argument(flag: str, metavar: str, help: str, **how: Any) -> Argument:
    return flag, {"metavar": metavar, "help": help, "default": argparse.SUPPRESS, **how}


def switch(flag: str, dest: str, help: str) -> Argument:
    return flag, {"dest": dest, "help": help, "default": argparse.SUPPRESS, "action": "store_true"}


def choices(*names: str) -> list[Argument]:
    """Options that `verbs/choices.py` declares."""
    made = []
    for name in names:
        wanted, option = options()[name]
        kinds = get_args(wanted)
        number = whole_number_or_auto if Literal["auto"] in kinds else int
        how = {"action": "append"} if name == "settings" else {"type": number if int in kinds else str}
        flag = option.flag or f"--{name.replace('_', '-')}"
        plain = argument(flag, option.metavar, option.help, dest=name, **how)
        made.append(plain if option.stands_for is None else switch(flag, name, option.help))
    return made


def whole_number_or_auto(text: str) -> int | str:  # argparse shows this name in its error
    return text if text == "auto" else int(text)


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


RUN = argument("run", "RUN", "run directory")
TRUTH = argument("--truth", "DATA", "true classes: a folder with one sub-folder per class, or a CSV file")
JSON = switch("--json", "as_json", "print JSON")
PLUGIN_HELP = "Python file that registers methods, organizers … of your own; may be repeated"
PLUGIN = argument("--plugin", "FILE.py", PLUGIN_HELP, dest="plugins", action="append")
DATA = argument("data", "DATA", "folder, CSV file (path,label) or name of a data set", nargs="?")
TIME = argument("--time", "TIME", "how long it may take: 90s, 10m, 2h (default: 1h)")
PLANNED = choices("k", "assigner", "whiten", "seed", "backbone", "weights", "data_root", "device", "settings")
CHOSEN = (
    *choices("k", "method", "organizer", "tuning", "start", "assigner", "whiten", "seed", "epochs", "cache_views"),
    *choices("backbone", "weights", "data_root", "recipe", "device", "settings"),
)
TRAINING = (DATA, argument("--out", "RUN", "run directory to write", required=True), *CHOSEN)


@verb(DATA, argument("--out", "RUN", "run directory to write (default: newkinds-NAME)"), TIME, *CHOSEN)
def _discover(data: str | None = None, **chosen: Any) -> None:
    """Find the known and new categories of your images, and write tables and a page. The way is chosen by evidence,
    within --time; naming a method, an organizer, a recipe or how to train switches that off.

    newkinds discover photos/                         find the new kinds in a folder of photos
    newkinds discover photos/ --time 10m --k 40 --out runs/photos
    newkinds discover photos/ --weights dinov2_vits14_pretrain.pth
    newkinds discover creatures --out runs/creatures --method simgcd --organizer cpf --epochs 20
    """
    from .discovery.categories import summary
    from .verbs.discover import discover

    show(summary(discover(data, **chosen)))


@verb(DATA, argument("--out", "FOLDER", "where to write (default: newkinds-tune-NAME)"), TIME, *PLANNED)
def _tune(data: str | None = None, **chosen: Any) -> None:
    """Compare ways to find categories on labelled images alone, and write the best as a recipe.

    newkinds tune photos/ --time 20m --out tuned      which way is best for these images
    newkinds discover photos/ --recipe tuned/recipe.yaml
    """
    from .verbs.discover import tune

    tuned = tune(data, **chosen)
    show(f"{tuned['table']}\n\n{tuned['chosen']}: {tuned['why']}")


@verb(
    argument("--out", "FOLDER", "where to write (default: newkinds-demo)"),
    argument("--hosts", "NAMES", "methods, separated by commas, or all (default: simgcd)", type=names),
    argument("--seeds", "N", "one run each (default: 0 to 4; for several hosts 0 to 2)", type=int, nargs="+"),
    *choices("epochs"),
)
def _demo(**chosen: Any) -> None:
    """Train hosts alone, with an adapter and with CPF on drawn creatures, beside k-means without training, and compare
    them in a table and on a web page: which differences can be told from chance?

    newkinds demo                                     does CPF help SimGCD on drawn creatures?
    newkinds demo --out my-demo --seeds 1 --epochs 30
    newkinds demo --hosts all --out plug-in           all hosts of the paper, three seeds: the plug-in table
    newkinds demo --hosts cms,selex --seeds 0 1 2 3 4
    """
    from .experiments.demo import demo

    show(demo(**chosen))


@verb(*TRAINING)
def _train(out: str, data: str | None = None, **chosen: Any) -> None:
    """Train a method on partly labelled images; to resume an interrupted run, rerun the same command.

    newkinds train creatures --out runs/a --organizer cpf --set train.epochs=30
    newkinds train photos/ --out runs/b --k 40 --organizer cpf --backbone vit_small_patch14_dinov2
    newkinds train list.csv --out runs/c --k 12 --recipe mine.yaml --set train.lr=0.05
    newkinds train --recipe simgcd/cub --organizer cpf --data-root datasets/ --out runs/d
    """
    from .verbs.train import train

    train(data, out, **chosen)
    show(f"trained: {out} (newkinds eval, newkinds discover and newkinds predict use it)")


@verb(
    argument("data", "DATA", "folder, CSV file (path,label) or name of a data set", nargs="?"),
    argument("--out", "FOLDER", "where to write check.csv: path, check, score, sentence (default: only print)"),
    switch("--pixels-only", "pixels_only", "leave out the checks that compare images in a backbone's features"),
    JSON,
    *choices("backbone", "weights", "data_root", "recipe", "device", "settings"),
)
def _check(data: str | None = None, as_json: bool = False, **chosen: Any) -> int:
    """Look for faults in data before training: unreadable, blank, tiny, duplicate and nearly duplicate images, one
    image under two labels, likely wrong labels, images unlike all others, and too few images or labels.
    The exit status is 0 if no image is flagged, and 1 if one is (or if the check cannot be made).

    newkinds check photos/                            what may be wrong with the images and labels
    newkinds check photos/ --pixels-only              in seconds, without a backbone
    newkinds check list.csv --out checked/ --weights dinov2_vits14_pretrain.pth
    newkinds check photos/ --json > findings.json
    """
    from .checks import CHECK_CSV, as_records, not_run, summary
    from .verbs.check import check

    findings = check(data, **chosen)
    if as_json:
        show(json_text({"findings": as_records(findings), "not_run": not_run(findings)}, "the result", indent=1))
    else:
        show(summary(findings))
        if left_out := not_run(findings):
            how = "leave out --pixels-only" if chosen.get("pixels_only") else "name a weight file by --weights FILE"
            show(f"not checked: {', '.join(left_out)} (they need the features of a backbone: {how})")
        if "out" in chosen:
            show(f"all that was found is in {Path(chosen['out']) / CHECK_CSV}")
    return 1 if any(finding.flagged for finding in findings) else 0


@verb(RUN, TRUTH, JSON)
def _eval(run: str, truth: str | None = None, as_json: bool = False) -> None:
    """Accuracy of a run on its unlabelled images, if their true classes are known, and on a benchmark's test
    images, if available.

    newkinds eval runs/creatures                      accuracy on all, old and new classes
    newkinds eval runs/photos --truth sorted-photos/
    """
    from .evaluation.judge import evaluate, evaluation_table

    result = evaluate(run, truth)
    show(json_text(result, "the result", indent=1) if as_json else evaluation_table(result))


@verb(
    RUN,
    argument("--against", "RUN", "another run to compare with, such as the host without CPF"),
    argument("--out", "FOLDER", "where to write (default: RUN/figures)"),
    argument("--images", "N", "images in the figures of attention and primitives (default: 8)", type=int),
    TRUTH,
    *choices("device"),
)
def _figures(run: str, **chosen: Any) -> int:
    """Draw what a finished run sees and found, as PNG and SVG: class-token attention, primitives and the patches that
    activate them most, a map of the features, confusion with the true classes and, on creatures, true parts.

    newkinds figures runs/cpf --against runs/host     attention, primitives, map and confusion as pictures
    newkinds figures runs/photos --images 4 --out pictures/
    newkinds figures runs/photos --truth sorted-photos/
    """
    from .verbs.figures import figures

    drawn = figures(run, **chosen)
    if drawn.parts is not None:
        show(drawn.parts.table())
    skipped = f"; skipped: {', '.join(drawn.skipped)} (see above)" if drawn.skipped else ""
    show(f"{len(drawn.files)} files in {drawn.folder}{skipped}")
    return 0 if drawn.files else 1


@verb(
    argument("runs", "RUN", "run directories of finished runs", nargs="+"),
    argument("--against", "RUN", "show this run of the same images beside them, such as the host without CPF"),
    argument("--out", "FOLDER", "where to write (default: into each run)"),
    argument("--images", "N", "how many of a run's images to look at (default: 1000)", type=int),
    switch(
        "--features-only", "features_only", "only the features that runs kept: at once, and without figures of each"
    ),
    *choices("device"),
)
def _diagnose(runs: list[str], **chosen: Any) -> None:
    """What happens inside finished runs: entropy and rank of features and tokens before and after the organizer, what
    CPF's fields, primitives and contribution are like. Tables, diagnose.json and figures.
    Several runs end with a table of all: does lower or higher entropy go with better discovery?

    newkinds diagnose runs/cpf --against runs/host    what an organizer does to features and tokens
    newkinds diagnose runs/cpf --images 200 --out diagnosed
    newkinds diagnose runs/*/ --features-only         rank correlation of entropy and accuracy over many runs
    """
    from .evaluation.diagnose import diagnose_runs

    show(diagnose_runs(runs, **chosen).text)


@verb(
    RUN, argument("images", "IMAGE", "image files or folders", nargs="+"),
    argument("--out", "FILE", "CSV file to write (default: print)"), *choices("device"),
)  # fmt: skip
def _predict(run: str, images: list[str], out: str | None = None, **chosen: Any) -> int:
    """Categories of new images, by a finished run.

    newkinds predict runs/photos new-images/          categories of new images
    newkinds predict runs/photos new.jpg
    newkinds predict runs/photos folder/ --out predictions.csv
    """
    from .discovery.categories import unlike_text
    from .discovery.finished import inputs_of, load

    file = Path(out or os.devnull)
    beside = file.with_suffix(".skipped.csv")
    if out:
        make_folder(file.parent)  # before the work, not after it
        for written in (file, beside):
            refuse_inputs(written, inputs_of(run, images))
    predictions, skipped = load(run, **chosen).predict_or_skip(images)
    columns = ("path", "category", "is_new", "confidence", "unlike")
    rows = [
        (p.path, p.category, str(p.is_new).lower(), f"{p.confidence:.4f}", unlike_text(p.unlike)) for p in predictions
    ]
    if out:
        write_whole(file, csv_text(columns, rows))
        show(f"{len(rows)} predictions in {out}", file=sys.stderr)
        if skipped and is_replaceable(file):
            write_whole(beside, csv_text(("path", "reason"), [(s.path, s.reason) for s in skipped]))
            show(f"{len(skipped)} image(s) skipped, listed in {beside}", file=sys.stderr)
    else:
        show(csv_text(columns, rows), end="")
    return 0 if predictions else 1


@verb(
    RUN,
    *choices("assigner", "whiten"),
    argument("--out", "RUN", "run directory to write (default: RUN is changed in place)"),
    *choices("seed", "device", "settings"),
)
def _assign(run: str, **chosen: Any) -> None:
    """Find the categories of a finished run again, by another assigner, in the features it already has.

    newkinds assign runs/photos --assigner pim        categories by another assigner
    newkinds assign runs/photos --assigner sskmeans --whiten --out runs/whitened
    newkinds assign runs/photos --assigner own        back to the method's own
    """
    from .discovery.categories import summary
    from .verbs.assign import assign

    show(summary(assign(run, **chosen)))


@verb(
    argument("source", "RUN|DATA", "run directory, folder, CSV file or name of a data set"),
    argument("--by", "NAME", "combined (default), ward, brent or binary; the last two expect a single peak"),
    argument("--largest", "N", "the most categories that brent or binary may try", type=int),
    switch("--published", "published", "by ward, as the published CMS code scores it, with all true classes"),
    TRUTH,
    argument("--plot", "FILE", "write the curve as a PNG picture", dest="plot_to"),
    JSON,
    *choices("backbone", "weights", "data_root", "recipe", "device", "settings"),
)
def _count(source: str, as_json: bool = False, **chosen: Any) -> None:
    """How many categories there are: a number, an interval and how sure it is; judged by the labelled images alone.

    newkinds count photos/ --plot count.png           how many categories there are
    newkinds count photos/ --backbone vit_small_patch14_dinov2 --plot count.png
    newkinds count runs/photos                        in the features of a finished run
    newkinds count runs/photos --by brent --largest 300
    """
    from .cluster.count import summary
    from .verbs.count import count_categories

    counted = count_categories(source, **chosen)
    show(json_text(asdict(counted), "the result") if as_json else summary(counted))


@verb(argument("names", "NAME", "data sets (default: all)", nargs="*"), *choices("data_root"))
def _data_check(names: Sequence[str] = (), data_root: str | None = None) -> int:
    """Count and decode the images of each data set, and compare them with the published split.
    What is missing is reported, with where to get it.

    newkinds data check                               which benchmark data sets are available and complete
    newkinds data check cub cars --data-root datasets/
    """
    from .data.published.check import check

    checked = check(names, data_root)
    show("\n\n".join(report.text() for report in checked))
    usable = [report.usable for report in checked]
    return 0 if (all(usable) if names else any(usable)) else 1


@verb()
def _cache_list() -> None:
    """What is cached, and how large it is.

    newkinds cache list
    """
    from .training.store import cache_root, list_caches, listing

    show(listing(list_caches(), f"in {cache_root()}"))


@verb(
    argument("keys", "KEY", "as newkinds cache list shows them", nargs="*"),
    switch("--all", "everything", "delete all of them"),
)
def _cache_clear(keys: Sequence[str] = (), everything: bool = False) -> None:
    """Delete caches; they are made again when they are needed.

    newkinds cache clear 3f0c7a2b9d4e1f56
    newkinds cache clear --all
    """
    from .training.store import cache_root, clear_caches, listing

    if bool(keys) == everything:
        raise NewkindsError("name the caches to delete (newkinds cache list shows them), or say --all.")
    show(listing(clear_caches(keys), f"deleted from {cache_root()}"))


@verb(
    argument("table", "TABLE", "fine, coarse, count, cost; for any data: ablation, sensitivity, plugin, all"),
    argument("--out", "FOLDER", "where the runs are, one folder per run", required=True),
    argument("--methods", "NAMES", "separated by commas (default: the table's)", type=names),
    argument("--organizers", "NAMES", "likewise: none, patches, cpf … (see docs/reproducibility.md)", type=names),
    argument("--baselines", "NAMES", "likewise, of frozen features: kmeans, pim-whitened …, all or none", type=names),
    argument("--data", "NAMES", "likewise data sets; for any data also folders and CSV files", type=names),
    argument("--seeds", "N", "one run each (default: 0)", type=int, nargs="+"),
    argument("--against", "NAME", "organizer that rows are compared with (default: none, the host alone)"),
    switch("--collect", "only_collect", "run nothing: print what is finished"),
    argument("--style", "STYLE", "markdown (default), latex or csv", choices=("markdown", "latex", "csv")),
    *choices("epochs", "cache_views", "backbone", "weights", "data_root", "device", "settings"),
)
def _bench(table: str, out: str, **chosen: Any) -> int:
    """Run or resume a grid of methods, organizers and seeds, and print it as a table: one of the paper's
    (all that it reports, ours, gain over the host), or one for your own data; "all" has every system in a small size.
    With two seeds or more each gain has its confidence interval. Second stages start from the runs of their first. The
    ablation and the sensitivity to primitives and heads are also drawn, beside the runs.

    newkinds bench fine --out runs/fine --data cub --methods simgcd --seeds 0 1 2 --data-root datasets/
    newkinds bench coarse --out runs/coarse --collect --style latex
    newkinds bench ablation --out runs/ablation --data cub --weights dino_vitbase16_pretrain.pth
    newkinds bench ablation --out runs/parts --data creatures --seeds 0 1 2 --epochs 15 --against adapter
    newkinds bench sensitivity --out runs/sizes --data birds/ --set data.known=0.5 --seeds 0 1 2
    newkinds bench plugin --out runs/birds --data birds/ --set data.known=0.5 --organizers none,patches,cpf
    newkinds bench all --out runs/all --data creatures
    """
    from .experiments.bench import bench

    benched = bench(table, out, **chosen)
    show(benched.text)
    if benched.pictures:
        show(f"drawn in {', '.join(map(str, benched.pictures))}", file=sys.stderr)
    if benched.failed:
        show(f"{len(benched.failed)} requested run(s) could not be finished: see above", file=sys.stderr)
    return 1 if benched.failed else 0


KINDS = ("methods", "organizers", "tunings", "assigners", "backbones", "datasets", "checks", "counters", "recipes")


@verb(argument("kind", "KIND", ", ".join(KINDS), nargs="?", choices=KINDS, default=None))
def _list(kind: str | None) -> None:
    """What there is to choose from.

    newkinds list
    newkinds list organizers
    """
    from .verbs.listing import listing

    show(listing(kind))


def parser() -> argparse.ArgumentParser:
    """The parsers of all verbs."""
    first_examples = [example for verb in VERBS.values() for example in verb.examples[:1]]
    main = argparse.ArgumentParser("newkinds", **_help(ABOUT, first_examples, LAYOUT))
    main.add_argument("--version", action="version", version=f"newkinds {__version__}")
    main.add_argument("--debug", action="store_true", help="show the traceback of an error")
    places = {"": main.add_subparsers(metavar="VERB", title="verbs")}
    for name, verb in VERBS.items():
        group, _, last = name.rpartition(" ")
        if group not in places:
            examples = [e for other in VERBS if other.startswith(group) for e in VERBS[other].examples]
            added = places[""].add_parser(group, help=GROUPS[group], **_help(GROUPS[group], examples))
            places[group] = added.add_subparsers(metavar="ACTION", required=True)
        added = places[group].add_parser(last, help=verb.summary, **_help(verb.summary, verb.examples))
        added.set_defaults(verb=name)
        for flag, how in verb.arguments if group else [*verb.arguments, PLUGIN]:
            added.add_argument(flag, **how)
    return main


def _help(summary: str, examples: Sequence[str], note: str = "") -> dict[str, Any]:
    epilog = "\n  ".join(["examples:", *examples]) + f"\n\n{note}"
    return {"description": summary, "epilog": epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 0 (done), 1 (not done), 2 (misused) or 130 (interrupted)."""
    given = vars(parser().parse_args(arguments))
    verb, debug = given.pop("verb", None), given.pop("debug")
    if verb is None:
        parser().print_help()
        return 2
    process.prepare()
    try:
        for file in given.pop("plugins", []):
            from .plugins import load

            load(file)
        if "settings" in given:
            from .settings import parse_assignment

            given["settings"] = [parse_assignment(text) for text in given["settings"]]
        return VERBS[verb].run(**given) or 0
    except KeyboardInterrupt:
        resumes = verb in ("demo", "train", "discover", "tune", "bench")
        show(f"interrupted{'; to resume, rerun the same command' if resumes else ''}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader (head, less) has closed: nothing more to say, and nothing to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        show(f"error: {reason_of(error)}", file=sys.stderr)
        if not isinstance(error, NewkindsError):
            show(f"This may be a bug in newkinds: newkinds --debug {verb} … shows where it happened.", file=sys.stderr)
        return 1

"""The command line. Each verb is a Python function of `newkinds` with the same options; torch is imported only then."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from . import process
from .errors import NewkindsError, reason_of
from .text import show

EXAMPLES = """examples:
  newkinds demo                                     SimGCD with and without CPF on drawn creatures, as a web page
  newkinds demo --hosts all --out plug-in           every method with and without CPF
  newkinds discover photos/ --out runs/photos --k 40 --organizer cpf
  newkinds predict runs/photos new-images/          categories of images never seen
  newkinds train creatures --out runs/a --organizer cpf --set train.epochs=30
  newkinds eval runs/a                              accuracy on all, old and new classes
  newkinds count photos/ --plot count.png           how many categories there are
  newkinds data check --data-root datasets/         which benchmark data sets are there, and complete
  newkinds list                                     methods, organizers, backbones, data sets, recipes …

photos/ holds one folder a known class, and a folder 'unlabeled' (or loose files) for all the rest.
"""


def parser() -> argparse.ArgumentParser:
    main = _parser(
        "newkinds",
        "Recognise the known kinds in your images, and discover, count and look at the new ones.",
        EXAMPLES,
    )
    main.add_argument("--version", action="store_true", help="show the version and exit")
    main.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = main.add_subparsers(dest="verb", metavar="VERB", title="verbs")

    def verb(name: str, summary: str, examples: str) -> argparse.ArgumentParser:
        return verbs.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    demo = verb(
        "demo",
        "Train hosts with and without CPF on drawn creatures and compare them in a table and on a web page.",
        "  newkinds demo\n  newkinds demo --out my-demo --seeds 1 --epochs 30\n"
        "  newkinds demo --hosts all --out plug-in          every method, three seeds: the plug-in table\n"
        "  newkinds demo --hosts cms,selex --seeds 0 1 2 3 4",
    )
    demo.add_argument("--out", default="newkinds-demo", metavar="FOLDER", help="where to write (default: %(default)s)")
    demo.add_argument(
        "--hosts", default="simgcd", metavar="NAMES", help="methods, separated by commas, or all (default: %(default)s)"
    )
    demo.add_argument(
        "--seeds", type=int, nargs="+", metavar="N", help="one run each (default: 0; for several hosts 0 1 2)"
    )
    demo.add_argument("--epochs", type=int, metavar="N", help="epochs of each run")

    train = verb(
        "train",
        "Train a method on partly labelled images; the same command goes on after an interruption.",
        "  newkinds train creatures --out runs/a\n"
        "  newkinds train photos/ --out runs/b --k 40 --organizer cpf --backbone vit_small_patch14_dinov2\n"
        "  newkinds train list.csv --out runs/c --k 12 --recipe mine.yaml --set train.lr=0.05\n"
        "  newkinds train --recipe simgcd/cub --organizer cpf --data-root datasets/ --out runs/d",
    )
    _training_options(train)

    discover = verb(
        "discover",
        "Train (or go on), then assign every image to a known or new category and write tables and a page.",
        "  newkinds discover photos/ --out runs/photos --k 40 --organizer cpf\n"
        "  newkinds discover creatures --out runs/creatures --set train.epochs=20",
    )
    _training_options(discover)

    evaluate = verb(
        "eval",
        "Accuracy of a run on its unlabelled images, where their true classes are known, and on a benchmark's "
        "test images, where they are there.",
        "  newkinds eval runs/creatures\n  newkinds eval runs/photos --truth sorted-photos/",
    )
    evaluate.add_argument("run", metavar="RUN", help="run directory")
    evaluate.add_argument(
        "--truth", metavar="DATA", help="folder with one sub-folder a class, or CSV file with path and label"
    )
    evaluate.add_argument("--json", action="store_true", help="print JSON instead of a table")

    predict = verb(
        "predict",
        "Categories of images never seen, by a finished run.",
        "  newkinds predict runs/photos new.jpg\n  newkinds predict runs/photos folder/ --out predictions.csv",
    )
    predict.add_argument("run", metavar="RUN", help="run directory")
    predict.add_argument("images", metavar="IMAGE", nargs="+", help="image files or folders")
    predict.add_argument("--out", metavar="FILE", help="CSV file to write (default: print)")
    predict.add_argument("--device", default="auto", help="auto, cpu, cuda, mps (default: %(default)s)")

    count = verb(
        "count",
        "How many categories there are, judged by the labelled images alone.",
        "  newkinds count photos/ --backbone vit_small_patch14_dinov2 --plot count.png\n"
        "  newkinds count runs/photos                       in the features of a finished run\n"
        "  newkinds count runs/photos --by brent --largest 300",
    )
    count.add_argument("source", metavar="RUN|DATA", help="run directory, folder, CSV file or data set's name")
    count.add_argument(
        "--by",
        default="ward",
        metavar="NAME",
        help="ward (default), or brent, binary: searches for a single peak, which few images do not have",
    )
    count.add_argument("--largest", type=int, metavar="N", help="the most categories that brent or binary may try")
    count.add_argument(
        "--published", action="store_true", help="ward as the published CMS code scores it, with all true classes"
    )
    count.add_argument("--truth", metavar="DATA", help="where --published finds the true classes (as in eval)")
    count.add_argument("--plot", metavar="FILE", help="write the curve as a PNG picture")
    count.add_argument("--json", action="store_true", help="print JSON: answer, curve, method, known")
    _model_options(count)

    data = verb(
        "data",
        "Look after the benchmark data sets.",
        "  newkinds data check\n  newkinds data check cub cars --data-root datasets/",
    )
    check = data.add_subparsers(dest="action", metavar="ACTION", required=True).add_parser(
        "check",
        help="count and decode the images of each data set, and hold them against the published split",
        description="Count and decode the images of each data set, and hold them against the published split. "
        "What is missing is named, and where to get it.",
        epilog="examples:\n  newkinds data check\n  newkinds data check cub cars --data-root datasets/",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("names", metavar="NAME", nargs="*", help="data sets (default: all)")
    check.add_argument("--data-root", metavar="FOLDER", help="where the data sets are (default: $NEWKINDS_DATA)")

    cache = verb(
        "cache",
        "Look after the cached tokens that --cache-views makes.",
        "  newkinds cache list\n  newkinds cache clear 3f0c7a2b9d4e1f56\n  newkinds cache clear --all",
    )
    actions = cache.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="what is cached, and how large it is")
    clear = actions.add_parser("clear", help="delete caches; they are made again when they are needed")
    clear.add_argument("keys", metavar="KEY", nargs="*", help="as newkinds cache list shows them")
    clear.add_argument("--all", action="store_true", help="delete all of them")

    bench = verb(
        "bench",
        "Run or resume a grid of methods, organizers and seeds, and print it as a table: one of the paper's (reported, "
        "ours, gain over the host), or one for data of your own.",
        "  newkinds bench fine --out runs/fine --data cub --methods simgcd --seeds 0 1 2 --data-root datasets/\n"
        "  newkinds bench coarse --out runs/coarse --collect --style latex\n"
        "  newkinds bench ablation --out runs/ablation --data cub --weights dino_vitbase16_pretrain.pth\n"
        "  newkinds bench plugin --out runs/birds --data birds/ --set data.known=0.5 --organizers none,patches,cpf",
    )
    bench.add_argument("table", metavar="TABLE", help="fine, coarse, ablation, count, cost, or plugin (any data)")
    bench.add_argument("--out", required=True, metavar="FOLDER", help="where the runs are, one folder each")
    for name, what in (
        ("methods", "methods"),
        ("organizers", "none, patches, cpf, cpf-without-prior … (docs/reproducibility.md lists them)"),
        ("data", "data sets; for plugin also folders and CSV files"),
    ):
        bench.add_argument(f"--{name}", metavar="NAMES", help=f"{what}, separated by commas (default: the table's)")
    bench.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N", help="one run each (default: 0)")
    bench.add_argument("--collect", action="store_true", help="run nothing: print what there is")
    bench.add_argument("--style", default="markdown", choices=("markdown", "latex", "csv"), help="default: %(default)s")
    bench.add_argument("--epochs", type=int, metavar="N", help="short for --set train.epochs=N")
    _cache_option(bench)
    _model_options(bench, of_recipes=True)

    listing = verb("list", "What there is to choose from.", "  newkinds list\n  newkinds list organizers")
    kinds = ("methods", "organizers", "backbones", "datasets", "counters", "recipes")
    listing.add_argument("kind", nargs="?", choices=kinds)
    return main


def _parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=name, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _training_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("data", metavar="DATA", nargs="?", help="folder, CSV file (path,label) or data set's name")
    verb.add_argument("--out", required=True, metavar="RUN", help="run directory to write")
    verb.add_argument(
        "--k",
        type=_number_or_auto,
        metavar="N",
        help="how many categories there are in all, known ones included; auto: estimate",
    )
    verb.add_argument("--method", metavar="NAME", help="discovery method (default: simgcd)")
    verb.add_argument("--organizer", metavar="NAME", help="token organizer: none, patches, cpf (default: none)")
    verb.add_argument("--seed", type=int, metavar="N", help="seed of everything random (default: 0)")
    verb.add_argument("--epochs", type=int, metavar="N", help="short for --set train.epochs=N")
    _cache_option(verb)
    _model_options(verb)


def _cache_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--cache-views",
        type=_number_or_auto,
        metavar="V",
        help="compute the frozen part of the backbone once, for V fixed random views of each image; 0: never "
        "(default: auto, 8 where there is no GPU and training is long enough)",
    )


def _model_options(verb: argparse.ArgumentParser, of_recipes: bool = False) -> None:
    """`of_recipes`: where there is one for each run already, what is not chosen is the recipe's."""
    default = "default: the recipe's" if of_recipes else "default: tiny"
    verb.add_argument("--backbone", metavar="NAME", help=f"tiny (bundled) or any timm model ({default})")
    verb.add_argument("--weights", metavar="FILE", help="the backbone's weights: .safetensors or .pth")
    verb.add_argument("--data-root", metavar="FOLDER", help="where the data sets are (default: $NEWKINDS_DATA)")
    if not of_recipes:
        verb.add_argument("--recipe", metavar="FILE|NAME", help="YAML file with settings, or one of ours: simgcd/cub")
    verb.add_argument("--device", metavar="NAME", help="auto, cpu, cuda, mps (default: auto)")
    verb.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="one setting, e.g. method.memax_weight=2"
    )


def _number_or_auto(text: str) -> int | str:
    """A number, or the wish that it be found."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"give a whole number or auto, not '{text}'") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 0 (done), 1 (not done), 2 (misused) or 130 (interrupted)."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(arguments)
    if options.version:
        from ._version import __version__

        show(f"newkinds {__version__}")
        return 0
    if options.verb is None:
        parser().print_help()
        return 2
    process.prepare()
    try:
        return VERBS[options.verb](options)
    except KeyboardInterrupt:
        resumes = options.verb in ("demo", "train", "discover", "bench")
        show(f"interrupted{'; the same command goes on where this one stopped' if resumes else ''}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader (head, less) has closed: nothing more to say, and nothing to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except NewkindsError as error:
        if options.debug:
            raise
        show(f"error: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        if options.debug:
            raise
        show(
            f"error: {reason_of(error)}\nThis may be a bug in newkinds: "
            f"newkinds --debug {options.verb} … shows where it happened.",
            file=sys.stderr,
        )
        return 1


def _choices(options: argparse.Namespace) -> dict[str, Any]:
    from .settings import parse_assignment

    given = vars(options)  # count has fewer options than train
    of_training = ("device", "seed", "epochs", "cache_views")
    shortcuts = {name: given[name] for name in of_training if given.get(name) is not None}
    chosen = ("k", "method", "organizer", "backbone", "weights", "data_root", "recipe")
    return {
        **{name: given[name] for name in chosen if name in given},
        "settings": [{"train": shortcuts}, *map(parse_assignment, options.set)],
    }


def _demo(options: argparse.Namespace) -> int:
    from .experiments.demo import demo

    chosen = {} if options.epochs is None else {"epochs": options.epochs}
    hosts = options.hosts if options.hosts == "all" else [name.strip() for name in options.hosts.split(",")]
    show(demo(options.out, hosts, options.seeds, **chosen))
    return 0


def _train(options: argparse.Namespace) -> int:
    from .verbs.train import train

    train(options.data, options.out, **_choices(options))
    show(f"trained: {options.out} (newkinds eval, newkinds discover and newkinds predict use it)")
    return 0


def _discover(options: argparse.Namespace) -> int:
    from .discovery.categories import summary
    from .verbs.train import discover

    show(summary(discover(options.data, options.out, **_choices(options))))
    return 0


def _eval(options: argparse.Namespace) -> int:
    import json

    from .evaluation.judge import evaluate, evaluation_table

    result = evaluate(options.run, options.truth)
    show(json.dumps(result, indent=1) if options.json else evaluation_table(result))
    return 0


def _predict(options: argparse.Namespace) -> int:
    from pathlib import Path

    from .discovery.finished import inputs_of, load
    from .files import csv_text, is_replaceable, make_folder, refuse_inputs, write_csv

    out = Path(options.out or os.devnull)
    beside = out.with_suffix(".skipped.csv")
    if options.out:
        make_folder(out.parent)  # before the work, not after it
        for file in (out, beside):
            refuse_inputs(file, inputs_of(options.run, options.images))
    predictions, skipped = load(options.run, options.device).predict_or_skip(options.images)
    columns = ("path", "category", "is_new", "confidence")
    rows = [(p.path, p.category, str(p.is_new).lower(), f"{p.confidence:.4f}") for p in predictions]
    if options.out:
        write_csv(out, columns, rows)
        show(f"{len(rows)} predictions in {options.out}", file=sys.stderr)
        if skipped and is_replaceable(out):
            write_csv(beside, ("path", "reason"), [(s.path, s.reason) for s in skipped])
            show(f"{len(skipped)} image(s) passed over, listed in {beside}", file=sys.stderr)
    else:
        show(csv_text(columns, rows), end="")
    return 0 if predictions else 1


def _count(options: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict
    from pathlib import Path

    from .cluster.count import summary
    from .files import make_folder
    from .verbs.count import count_categories

    if options.plot:
        make_folder(Path(options.plot).parent)  # before the work, not after it
    counted = count_categories(
        options.source,
        options.by,
        largest=options.largest,
        published=options.published,
        truth=options.truth,
        plot_to=options.plot,
        **_choices(options),
    )
    show(json.dumps(asdict(counted)) if options.json else summary(counted))
    return 0


def _data(options: argparse.Namespace) -> int:
    from .data.published.check import check

    checked = check(options.names, options.data_root)
    show("\n\n".join(report.text() for report in checked))
    usable = [report.usable for report in checked]
    return 0 if (all(usable) if options.names else any(usable)) else 1


def _cache(options: argparse.Namespace) -> int:
    from .training.store import cache_root, clear_caches, list_caches, listing

    if options.action == "clear":
        if bool(options.keys) == options.all:
            raise NewkindsError("name the caches to delete (newkinds cache list shows them), or say --all.")
        show(listing(clear_caches(options.keys), f"deleted from {cache_root()}"))
    else:
        show(listing(list_caches(), f"in {cache_root()}"))
    return 0


def _bench(options: argparse.Namespace) -> int:
    from .experiments.bench import bench

    def names(text: str | None) -> list[str] | None:
        return None if text is None else [name.strip() for name in text.split(",")]

    benched = bench(
        options.table,
        options.out,
        methods=names(options.methods),
        organizers=names(options.organizers),
        data=names(options.data),
        seeds=options.seeds,
        only_collect=options.collect,
        style=options.style,
        **_choices(options),
    )
    show(benched.text)
    if benched.failed:
        show(f"{len(benched.failed)} of the runs asked for could not be finished: see above", file=sys.stderr)
    return 1 if benched.failed else 0


def _list(options: argparse.Namespace) -> int:
    from .verbs.listing import listing

    show(listing(options.kind))
    return 0


VERBS = {
    "demo": _demo,
    "train": _train,
    "discover": _discover,
    "eval": _eval,
    "predict": _predict,
    "count": _count,
    "bench": _bench,
    "data": _data,
    "cache": _cache,
    "list": _list,
}

"""The verbs that use and look at a finished run."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from ..errors import NewkindsError
from ..files import csv_text, is_replaceable, json_text, make_folder, refuse_inputs
from ..ownership import remove_output, require_output, require_table_name, write_output
from ..text import plural, show
from .options import DOWNLOAD, JSON, RUN, TRUTH, argument, choices, switch, verb
from .parsing import whole_number

MANY_UNLIKE = 0.2  # of the images: if as many are unlike every category, there may be kinds that the run does not know
MOST_NAMED = 3  # files and folders that a proposed command repeats


@verb(
    RUN, argument(
        "images", "IMAGE", "image files, folders, lists (CSV, JSON); vectors (.npy) for a run of these", nargs="+"
    ),
    argument("--out", "FILE", "CSV file to write (default: print)"),
    argument("--report", "FILE.html", "page to write: the images by category, those unlike every one in groups"),
    *choices("group_by_time", "device"),
)  # fmt: skip
def _predict(run: str, images: list[str], out: str | None = None, report: str | None = None, **chosen: Any) -> int:
    """Categories of new images, by a finished run.

    newkinds predict runs/photos new-images/          categories of new images
    newkinds predict runs/photos new.jpg
    newkinds predict runs/photos folder/ --out predictions.csv
    newkinds predict runs/photos folder/ --report predicted.html    a page to look through
    newkinds predict runs/photos 'new.jpg#xywh=10,20,300,200'       a box in a photo
    newkinds predict runs/photos detections.json                     what MegaDetector found in photos
    newkinds predict runs/texts others.npy --out predictions.csv
    """
    from ..verbs.predict import answer_about, inputs_of

    file = Path(out or os.devnull)
    beside = file.with_suffix(".skipped.csv")
    if out:
        if report is not None and os.path.abspath(report) in map(os.path.abspath, (file, beside)):
            raise NewkindsError(f"--report {report} is written by --out, too: choose another name.")
        make_folder(file.parent)  # before the work, not after it
        for written in (file, beside):
            refuse_inputs(written, inputs_of(run, images))
        require_table_name(file, "a table", "predictions.csv")
        for written in (file, beside):
            require_output(written)
    answer = answer_about(run, images, report, **chosen)
    predictions, skipped = answer.predictions, answer.skipped
    columns = ("path", "category", "category_id", "is_new", "confidence", "unlike")
    rows = [
        (p.path, p.category, p.category_id, str(p.is_new).lower(), f"{p.confidence:.4f}", f"{p.unlike:.3f}")
        for p in predictions
    ]
    if out:
        write_output(file, csv_text(columns, rows))
        show(f"{plural(len(rows), 'prediction')} in {out}", file=sys.stderr)
        if not skipped:
            remove_output(beside)  # of an earlier prediction
        elif is_replaceable(file):
            write_output(beside, csv_text(("path", "reason"), [(s.path, s.reason) for s in skipped]))
            show(f"{plural(len(skipped), 'image')} skipped, listed in {beside}", file=sys.stderr)
    else:
        show(csv_text(columns, rows), end="")
    if report is not None:
        show(f"look at {report}", file=sys.stderr)
    if said := _unlike_text(run, images, [p.as_member().is_unlike for p in predictions], report):
        show(said, file=sys.stderr)
    return 0 if predictions else 1


def _unlike_text(run: str, images: list[str], unlike: list[bool], report: str | None) -> str:
    """What to do about images unlike every category, if they are more than stragglers."""
    strange = sum(unlike)
    if strange < 2 or strange < MANY_UNLIKE * len(unlike):
        return ""
    asked = shlex.join(images) if len(images) <= MOST_NAMED else "IMAGE …"
    look = "shows them in groups" if report else "with --report FILE.html a page shows them in groups"
    page = f"{report} {look}" if report else look
    return (
        f"{strange:,} of {plural(len(unlike), 'image')} are unlike every category (unlike > 1): {page}; "
        f"newkinds update {shlex.quote(run)} {asked} takes them in, and opens a category where enough are alike"
    )


@verb(RUN, TRUTH, JSON)
def _eval(run: str, truth: str | None = None, as_json: bool = False) -> None:
    """Accuracy of a run on its unlabelled images, if their true classes are known, and on a benchmark's test
    images, if available.

    newkinds eval runs/creatures                      accuracy on all, old and new classes
    newkinds eval runs/photos --truth sorted-photos/
    """
    from ..console import warn
    from ..discovery.categories import Discovery
    from ..discovery.collapse import collapse_text
    from ..evaluation.judge import evaluate, evaluation_table

    result = evaluate(run, truth)
    if collapsed := collapse_text(Discovery.read(run)):
        warn(collapsed)
    show(json_text(result, "the result", indent=1) if as_json else evaluation_table(result))


@verb(
    RUN, argument("--out", "FILE", "HTML file to write (default: RUN/report.html)"),
    argument("--images", "FOLDER", "where the images are now, if they have moved"),
)  # fmt: skip
def _report(run: str, **chosen: Any) -> None:
    """Render the page of a finished run again, with all that was corrected since.

    newkinds report runs/photos                       the page again, with corrections
    newkinds report runs/photos --out photos.html
    newkinds report runs/photos --images /mnt/photos
    """
    from ..verbs.report import report

    show(f"look at {report(run, **chosen)}")


@verb(
    RUN,
    argument("--against", "RUN", "another run to compare with, such as the host without CPF"),
    argument("--out", "FOLDER", "where to write (default: RUN/figures)"),
    argument("--examples", "N", "images in the figures of attention and primitives (default: 8)", type=whole_number),
    TRUTH,
    DOWNLOAD,
    *choices("device"),
)
def _figures(run: str, **chosen: Any) -> int:
    """Draw what a finished run sees and found, as PNG and SVG: class-token attention, primitives and the patches that
    activate them most, a map of the features, confusion with the true classes and, on creatures, true parts.

    newkinds figures runs/cpf --against runs/host     attention, primitives, map and confusion as pictures
    newkinds figures runs/photos --examples 4 --out pictures/
    newkinds figures runs/photos --truth sorted-photos/
    """
    from ..verbs.figures import figures

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
    argument("--sample", "N", "how many of a run's images to look at (default: 1000)", type=whole_number),
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
    newkinds diagnose runs/cpf --sample 200 --out diagnosed
    newkinds diagnose runs/*/ --features-only         rank correlation of entropy and accuracy over many runs
    """
    from ..evaluation.diagnose import diagnose_runs

    show(diagnose_runs(runs, **chosen).text)


@verb(
    RUN,
    argument(
        "--to", "FORMAT", "csv, folders, coco, fiftyone, imagefolder, label-studio, tree, onnx, torch", required=True
    ),
    argument("--out", "TARGET", "file or folder to write, which is not there yet (csv: - prints it)", required=True),
    argument("--files", "HOW", "data sets: copy images (default), hardlink or symlink"),
    argument("--images", "FOLDER", "data sets: where the images are now, if they have moved"),
    argument(
        "--compare-on", "IMAGE", "onnx, torch: compare with the run on these images (default: 100 of the run's own)",
        nargs="+",
    ),
    switch("--junk", "junk", "data sets: with the images that are junk"),
    switch(
        "--keep-unlike", "keep_unlike",
        "folders: images that are unlike every category stay with the nearest one (default: in a folder of their own)",
    ),
)  # fmt: skip
def _export(run: str, to: str, out: str, **chosen: Any) -> None:
    """Take what a run found elsewhere, with all corrections by hand: the data in the formats of other tools, or the
    model for onnxruntime or torch.

    newkinds export runs/photos --to folders --out sorted    a folder per category; also csv, coco, onnx …
    newkinds export runs/photos --to folders --out sorted --files symlink
    newkinds export runs/photos --to csv --out found.csv
    newkinds export runs/photos --to coco --out photos-coco
    newkinds export runs/photos --to tree --out photos-tree   which categories are similar, as Newick and JSON
    newkinds export runs/photos --to onnx --out model-onnx    the model as one graph, for onnxruntime alone
    newkinds export runs/photos --to torch --out model-torch
    """
    from ..verbs.export import export, printed

    if out == "-":
        show(printed(run, to, **chosen), end="")
    else:
        show(f"{out}: {export(run, to, out, **chosen)}")


@verb(
    RUN,
    argument("--port", "N", "port on this machine (default: 8517, or one that is free)", type=whole_number),
    argument("--images", "FOLDER", "where the images are now, if their folder has moved"),
    switch("--no-browser", "no_browser", "only print the address"),
)
def _studio(run: str, port: int | None = None, images: str | None = None, no_browser: bool = False) -> None:
    """Look through what was found and correct it, in the browser: a local web app that only you can open.

    newkinds studio runs/photos                       look through the categories and correct them in the browser
    newkinds studio runs/photos --port 9000 --no-browser
    newkinds studio runs/photos --images /new/place/of/photos
    """
    from ..discovery.studio import open_studio

    open_studio(run, port, images, browser=not no_browser)

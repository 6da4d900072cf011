"""The verbs that find categories."""

import shlex
from pathlib import Path
from typing import Any

from ..files import json_text
from ..text import show
from .options import (
    BACKBONE,
    CHOSEN,
    DATA,
    DOWNLOAD,
    JSON,
    LOG,
    PLANNED,
    RUN,
    SOURCE,
    TIME,
    TRAINING,
    TRUTH,
    argument,
    choices,
    named_watchers,
    switch,
    verb,
)
from .parsing import whole_number


def _to_studio(run: Path) -> str:
    return f"to look through it and correct it: newkinds studio {shlex.quote(str(run))}"


@verb(DATA, argument("--out", "RUN", "run directory to write (default: newkinds-NAME)"), TIME, LOG, *CHOSEN)
def _discover(data: str | None = None, **chosen: Any) -> None:
    """Find the known and new categories of your images, and write tables and a page. The pipeline is chosen by
    cross-validation on your labels, within --time; naming a method, an organizer, a recipe or how to train switches
    that off.

    newkinds discover photos/                         find the known and new kinds, write tables and a page
    newkinds discover photos/ --time 10m --k 40 --out runs/photos
    newkinds discover photos/ --download              the backbone is downloaded, if it is not on this machine
    newkinds discover photos/ --weights dinov2_vits14_pretrain.pth
    newkinds discover vectors.npy --labels labels.csv
    newkinds discover detections.json --data-root photos/    what MegaDetector found, or COCO annotations
    newkinds discover creatures --out runs/creatures --method simgcd --organizer cpf --epochs 20
    """
    from ..discovery.summary import discovery_text
    from ..runs.directory import RunDirectory
    from ..verbs.discover import discover
    from ..verbs.plan import untried_sizes_text

    found = discover(data, **named_watchers(chosen))
    show(discovery_text(found))
    if untried := untried_sizes_text(RunDirectory(found.run)):
        show(untried)
    show(_to_studio(found.run))


@verb(DATA, argument("--out", "FOLDER", "where to write (default: newkinds-tune-NAME)"), TIME, *PLANNED)
def _tune(data: str | None = None, **chosen: Any) -> None:
    """Compare pipelines by cross-validation on your labels, and write the best as a recipe.

    newkinds tune photos/ --time 20m --out tuned      which pipeline is best for these images
    newkinds discover photos/ --recipe tuned/recipe.yaml
    """
    from ..search.search import table_of_scores
    from ..verbs.discover import default_out
    from ..verbs.tune import RECIPE, tune

    tuned = tune(data, **chosen)
    recipe = Path(chosen.get("out") or default_out(data, "tune")) / RECIPE
    show(f"{table_of_scores(tuned.candidates, tuned.chosen)}\n\n{tuned.chosen}: {tuned.why}")
    show(f"written as a recipe: newkinds discover {data or ''} --recipe {recipe}")


@verb(*TRAINING, LOG, switch("--dry-run", "dry_run", "say what it would take, by a few steps on noise; write nothing"))
def _train(out: str, data: str | None = None, dry_run: bool = False, **chosen: Any) -> None:
    """Train a method on partly labelled images; to resume an interrupted run, rerun the same command.

    newkinds train photos/ --out runs/a --method simgcd    train one method
    newkinds train creatures --out runs/a --organizer cpf --set train.epochs=30
    newkinds train photos/ --out runs/b --k 40 --organizer cpf --backbone vit_small_patch14_dinov2
    newkinds train list.csv --out runs/c --k 12 --recipe mine.yaml --set train.lr=0.05
    newkinds train --recipe simgcd/cub --organizer cpf --data-root datasets/ --out runs/d
    newkinds train photos/ --out runs/b --k 40 --dry-run      how long it would take, and how much memory
    """
    from ..verbs.forecast import forecast_training
    from ..verbs.train import train

    watched = named_watchers(chosen)
    if dry_run:
        show(forecast_training(data, out, **{name: value for name, value in chosen.items() if name != "log"}))
        return
    train(data, out, **watched)
    show(f"trained: {out} (newkinds eval, newkinds discover and newkinds predict use it)")


@verb(argument("checkpoint", "FILE", "checkpoint of SimGCD's code: .pt"), *TRAINING)
def _import(checkpoint: str, out: str, data: str | None = None, **chosen: Any) -> None:
    """Make a run of a model that SimGCD's code has trained: nothing is trained, the images are assigned by its
    prototypes. The known classes must be those that it was trained with, in the same order.

    newkinds import model.pt --recipe simgcd/cub --out runs/b    a run of a checkpoint of SimGCD's code
    newkinds import model_best.pt --recipe simgcd/cub --data-root datasets/ --out runs/published
    """
    from ..discovery.summary import discovery_text
    from ..verbs.importing import import_checkpoint

    show(discovery_text(import_checkpoint(checkpoint, data, out, **chosen)))


@verb(
    DATA,
    argument("--out", "FOLDER", "where to write check.csv: path, check, score, sentence (default: only print)"),
    switch("--pixels-only", "pixels_only", "leave out the checks that compare images in a backbone's features"),
    JSON,
    *BACKBONE,
)
def _check(data: str | None = None, as_json: bool = False, **chosen: Any) -> int:
    """Look for faults in data before training: unreadable, blank, tiny, duplicate and nearly duplicate images, one
    image under two labels, likely wrong labels, images far from all others, and too few images or labels.
    The exit status is 0 if no image is flagged, and 1 if one is (or if the check cannot be made).

    newkinds check photos/                            what may be wrong with the images and labels
    newkinds check photos/ --pixels-only              in seconds, without a backbone
    newkinds check list.csv --out checked/ --weights dinov2_vits14_pretrain.pth
    newkinds check photos/ --json > findings.json
    """
    from ..checks import CHECK_CSV, findings_of, findings_text, not_run, without_embedding
    from ..verbs.check import check

    findings = check(data, **chosen)
    if as_json:
        found = [finding._asdict() for finding in findings_of(findings)]
        show(json_text({"findings": found, "not_run": not_run(findings)}, "the result", indent=1))
    else:
        show(findings_text(findings))
        if left_out := without_embedding(not_run(findings)):
            how = "leave out --pixels-only" if chosen.get("pixels_only") else "add --download or --weights FILE"
            show(f"not checked: {', '.join(left_out)} (they need the features of a backbone: {how})")
        if "out" in chosen:
            show(f"all that was found is in {Path(chosen['out']) / CHECK_CSV}")
    return 1 if any(finding.flagged for finding in findings) else 0


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
    from ..discovery.summary import discovery_text
    from ..verbs.assign import assign

    show(discovery_text(assign(run, **chosen)))


@verb(
    RUN,
    argument("--out", "RUN", "run directory to write (default: RUN-refined)"),
    argument("--time", "TIME", "how long it may take: 90s, 10m, 2h (default: 10m)"),
    DOWNLOAD,
    *choices("device"),
)
def _refine(run: str, **chosen: Any) -> None:
    """Let a run learn from what you corrected: accepted and moved images become labels, merges and splits the new
    number of categories. The result is a run of its own; what you decided about an image stays.

    newkinds refine runs/photos                       learn from what was corrected
    newkinds refine runs/photos --time 1h --out runs/photos-2
    """
    from ..discovery.lessons import changes_text
    from ..discovery.summary import discovery_text
    from ..runs.changes import RefinedRecord
    from ..runs.directory import RunDirectory
    from ..verbs.refine import refine

    found = refine(run, **chosen)
    changes = changes_text(RefinedRecord.read(RunDirectory(found.run)), found.run)
    show(f"{changes}\n\n{discovery_text(found)}")
    show(_to_studio(found.run))


@verb(
    RUN,
    argument("more", "MORE", "photos, folders or lists (.csv) that came; .npy files, for a run of vectors", nargs="*"),
    argument("--time", "TIME", "look for a better model afterwards, for 90s, 10m, 2h … (default: not at all)"),
    switch("--undo", "undo", "take the last update back whole"),
    switch("--history", "history", "show what came when, and where it went; nothing is changed"),
    *choices("device"),
)
def _update(run: str, undo: bool = False, history: bool = False, **chosen: Any) -> None:
    """Put later images into the categories of a run, which stay as they are: images that were added to its folder, and
    MORE. An image like no category waits, or opens a new category if enough of them are alike.

    newkinds update runs/photos                       more photos: categories, names and corrections stay
    newkinds update runs/photos week-47/ another.jpg
    newkinds update runs/photos --time 10m            and a better model afterwards
    newkinds update runs/photos --history
    newkinds update runs/photos --undo
    """
    from ..errors import NewkindsError

    if (undo or history) and (chosen or (undo and history)):
        raise NewkindsError(f"--{'undo' if undo else 'history'} goes with nothing else: leave out the rest.")
    if history:
        from ..discovery.categories import Discovery
        from ..discovery.history import history_text
        from ..runs.changes import UpdateHistory
        from ..runs.directory import RunDirectory

        Discovery.read(run)  # what is no run is said
        show(history_text(UpdateHistory.of(RunDirectory(run))))
        return
    from ..discovery.summary import discovery_text

    if undo:
        from ..verbs.undo_update import undo_update

        show(discovery_text(undo_update(run)))
        return
    from ..verbs.update import update

    show(discovery_text(update(run, **chosen)))


@verb(
    argument("source", "RUN|DATA", f"run directory, {SOURCE}"),
    argument("--by", "NAME", "combined (default), ward, brent or binary; the last two expect a single peak"),
    argument("--largest", "N", "the most categories that brent or binary may try", type=whole_number),
    switch("--published", "published", "by ward, as the published CMS code scores it, with all true classes"),
    TRUTH,
    argument("--plot", "FILE", "write the curve as a PNG picture", dest="plot_to"),
    JSON,
    *BACKBONE,
)
def _count(source: str, as_json: bool = False, **chosen: Any) -> None:
    """How many categories there are: a number, an interval and how sure it is; judged by the labelled images alone.

    newkinds count photos/ --plot count.png           how many categories there are
    newkinds count photos/ --backbone vit_small_patch14_dinov2 --plot count.png
    newkinds count vectors.npy --labels labels.csv
    newkinds count runs/photos                        in the features of a finished run
    newkinds count runs/photos --by brent --largest 300
    """
    from dataclasses import asdict

    from ..cluster.count import count_text
    from ..verbs.count import count_categories

    counted = count_categories(source, **chosen)
    show(json_text(asdict(counted), "the result") if as_json else count_text(counted))

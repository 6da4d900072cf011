"""What may be wrong with data, before anything is learnt from it."""

from pathlib import Path

from typing_extensions import Unpack

from ..checks import CHECK_CSV, Finding, run_checks, write
from ..data import load_table
from ..data.table import readable
from ..encoders.backbones import weights_file
from ..errors import NewkindsError
from ..files import make_folder, refuse_inputs
from ..runs.config import resolve
from ..settings import flat
from .choices import Choices, layers_of
from .count import backbone_features


def check(
    data: str | Path | None, out: str | Path | None = None, *, pixels_only: bool = False, **choices: Unpack[Choices]
) -> list[Finding]:
    """Look for faults in data: unreadable, blank and duplicate images, contradicting labels, and what is too few.

    Some checks compare images in the features of a backbone. They are left out with `pixels_only`, and if no backbone
    is named: the bundled one knows drawn creatures only. `out`: a folder for `check.csv`.

    >>> findings = newkinds.check("photos/", backbone="vit_small_patch14_dinov2")
    >>> [finding.paths[row] for finding in findings for row in finding.flagged]
    """
    layers = layers_of(data, choices)
    config = resolve(*layers)
    named = any(setting.startswith("backbone.") for layer in layers for setting in flat(layer))
    compare = not pixels_only and (named or config.data["name"] == "creatures")
    # what cannot be done is said before the work, not after it
    if compare:
        weights_file(config.backbone["name"], config.backbone["weights"])
    if out is not None:
        make_folder(Path(out))
    table = load_table(config.data)
    if out is not None:
        refuse_inputs(Path(out) / CHECK_CSV, [*table.files(), *([] if data is None else [Path(data)])])
    table = readable(table, contents=True)
    if not len(table):
        raise NewkindsError("there is no readable image: nothing to check.")
    embedding = None
    if compare and len(table) > 1:
        embedding, rows = backbone_features(config, table)
        table = table.rows(rows)  # all of them, unless files change meanwhile
    findings = run_checks(table, embedding)
    if out is not None:
        write(findings, out)
    return findings

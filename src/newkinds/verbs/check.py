"""What may be wrong with data, before anything is learnt from it."""

from pathlib import Path

from typing_extensions import Unpack

from ..checks import CHECK_CSV, CheckResult, run_checks, write_findings
from ..console import warn
from ..data import load_table
from ..data.table import readable
from ..encoders.auto import AUTO
from ..encoders.backbones import VECTORS, weights_file
from ..encoders.hub import NoWord
from ..errors import NewkindsError
from ..files import make_folder, refuse_inputs
from ..ownership import OwnFiles
from ..runs.config import resolve
from .choices import Choices, layers_of
from .count import backbone_rows
from .layers import resolve_layers


def check(
    data: str | Path | None, out: str | Path | None = None, *, pixels_only: bool = False, **choices: Unpack[Choices]
) -> list[CheckResult]:
    """Look for faults in data: unreadable, blank and duplicate images, contradicting labels, and what is too few.

    Some checks compare images in the features of a backbone. They are left out with `pixels_only`, and if there is no
    backbone for photographs on this machine and none may or can be downloaded. `out`: a folder for `check.csv`.

    >>> findings = newkinds.check("photos/")
    >>> [finding.paths[row] for finding in findings for row in finding.flagged]
    """
    config = resolve(*(layers := layers_of(data, choices)))
    # what cannot be done is said before the work, not after it
    if pixels_only and config.backbone["name"] == VECTORS:
        raise NewkindsError("ready-made vectors have no pixels: leave out --pixels-only.")
    if not pixels_only:
        any_backbone = config.backbone["name"] == AUTO and config.backbone["weights"] is None
        try:
            config = resolve_layers(layers)
            if config.backbone["name"] != VECTORS:
                weights_file(config.backbone["name"], config.backbone["weights"])
        except NewkindsError as error:
            if not any_backbone:
                raise
            without = "none can be downloaded"
            if isinstance(error, NoWord):
                without = f"nothing is downloaded without --download, which would bring {error.what}"
            warn(f"there is no backbone for photographs on this machine, and {without}: only pixels count.")
            pixels_only = True
    if out is not None:
        make_folder(Path(out))
    table = load_table(config.data)
    if out is not None:
        refuse_inputs(Path(out) / CHECK_CSV, [*table.files(), *([] if data is None else [Path(data)])])
        OwnFiles(Path(out)).require(CHECK_CSV)
    table = readable(table, contents=True)
    if not len(table):
        raise NewkindsError("there is no readable image: nothing to check.")
    embedding = None
    if not pixels_only and len(table) > 1:
        embedding = backbone_rows(config, table)
    findings = run_checks(table, embedding)
    if out is not None:
        write_findings(findings, out)
    return findings

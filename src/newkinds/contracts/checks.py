"""What every check promises."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ..checks import CHECKS, CheckInput, CheckResult, Verdict
from ..checks.findings import findings_of, findings_text
from ..data.table import Table, readable
from .base import AskedPart, NotAsked, contract, require

KINDS = ("a", "b", "c", "d")
EACH = 12


def drawn_scenes(count: int) -> list[Image.Image]:
    """Different pictures of a few soft shapes."""
    scenes = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        coarse = rng.integers(20, 235, (6, 8, 3), dtype=np.uint8)
        scenes.append(Image.fromarray(coarse).resize((160, 120), Image.Resampling.BICUBIC))
    return scenes


def small_table(count: int) -> tuple[Table, Tensor]:
    """Pictures of four kinds, half of them labelled, and unit rows (n, D) that fit the labels."""
    kinds = [KINDS[row % len(KINDS)] for row in range(count)]
    labels: Sequence[str | None] = [kind if row // len(KINDS) % 2 == 0 else None for row, kind in enumerate(kinds)]
    pictures = drawn_scenes(count)
    table = Table([f"{row}.png" for row in range(count)], list(labels), pictures.__getitem__)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(len(KINDS), 32, generator=generator)
    rows = directions[[KINDS.index(kind) for kind in kinds]] + 0.1 * torch.randn(count, 32, generator=generator)
    return readable(table, contents=True), F.normalize(rows, dim=1)


def verdict_of(part: AskedPart, table: Table, embedding: Tensor | None) -> Verdict:
    found = CHECKS[part.name]().look(CheckInput(table, embedding))
    require(isinstance(found, Verdict), f"`look` returns a {type(found).__name__}, not a Verdict.")
    scored = len(table if found.paths is None else found.paths)
    for name, values in (("score", found.score), ("flag", found.flag)):
        shape = np.shape(values)
        require(shape == (scored,), f"`{name}` is of shape {shape}, not one for each of {scored} images.")
    require(bool(np.isfinite(found.score).all()), "some scores are not finite.")
    require(np.asarray(found.flag).dtype == bool, f"flags are of type {np.asarray(found.flag).dtype}, not bool.")
    unflagged = [row for row in found.why if not found.flag[row]]
    require(not unflagged, f"`why` has a reason for row {unflagged[:1]}, which is not flagged.")
    require(bool(found.sentence) or not found.flag.any(), "images are flagged, and no sentence says why.")
    results = [CheckResult(part.name, found, table.paths if found.paths is None else found.paths)]
    findings_of(results)
    findings_text(results)
    return found


@contract("check", keeper="look")
def a_score_and_a_flag_for_each_image(part: AskedPart) -> str | None:
    """Each image has a finite score and a flag, and images that nothing is wrong with are not flagged."""
    table, embedding = small_table(len(KINDS) * EACH)
    found = verdict_of(part, table, embedding)
    flagged = int(found.flag.sum())
    return f"it flags {flagged} of {len(found.flag)} images with which nothing is wrong" if flagged else None


@contract("check", keeper="look")
def a_few_images_are_enough(part: AskedPart) -> None:
    """One, two or five images are enough."""
    for count in (1, 2, 5):
        table, embedding = small_table(count)
        if count > 1 or not CHECKS[part.name].needs_embedding:
            verdict_of(part, table, embedding if count > 1 else None)


@contract("check", keeper="look")
def it_needs_what_it_says(part: AskedPart) -> None:
    """Without an embedding, or without pixels, it works, unless it says that it needs them."""
    check, (table, embedding) = CHECKS[part.name], small_table(len(KINDS) * EACH)
    if check.needs_embedding and check.needs_pixels:
        raise NotAsked("it needs both")
    if not check.needs_embedding:
        verdict_of(part, table, None)
    if not check.needs_pixels:
        ready_made = replace(table, vectors=embedding.numpy(), seen=None)
        verdict_of(part, readable(ready_made, contents=True), embedding)


@contract("check", keeper="look")
def the_same_twice(part: AskedPart) -> None:
    """It says the same twice."""
    table, embedding = small_table(len(KINDS) * EACH)
    first, again = verdict_of(part, table, embedding), verdict_of(part, table, embedding)
    same = np.array_equal(first.score, again.score) and first.sentence == again.sentence
    require(same, "a second look at the same images has other scores or another sentence.")

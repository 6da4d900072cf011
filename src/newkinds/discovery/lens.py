"""What people's edits make of the categories of images that were never seen: merged ones are one, of a split one an
image gets the part whose images it is nearest to, and what belongs to a category that was made junk is junk."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .categories import Discovery
from .edits import JUNK
from .split import unit_means


@dataclass(frozen=True)
class Reshape:
    """One edit: these categories became another one, or one of several parts."""

    categories: list[int]
    into: list[int]
    centres: NDArray[np.float32] | None = None  # (parts, P) unit rows, if there are several


class Lens:
    """Categories as people see them, for any image.

    >>> lens = Lens(Discovery.read(run), lambda: read_embedding(run, n))
    >>> lens.shown(category, embedding)                # (n,) ids of categories as found → (n,) ids as they are now
    """

    def __init__(self, discovery: Discovery, embedding: Callable[[], NDArray[np.float32]]) -> None:
        """`embedding` gives (n, P) of the run's own images; it is asked only if a category was split."""
        corrections = discovery.corrections()
        self.names = corrections.names
        self.is_new = {category.id: category.is_new for category in discovery.categories}
        self.steps: list[Reshape] = []
        row_of = {member.path: row for row, member in enumerate(discovery.found_members)}
        own: NDArray[np.float32] | None = None
        for edit in corrections.reshaping_edits():
            if edit["edit"] == "split":
                rows = [[row_of[path] for path in part["images"] if path in row_of] for part in edit["parts"]]
                parts = [(part["id"], inside) for part, inside in zip(edit["parts"], rows, strict=True) if inside]
                centres = None
                if len(parts) > 1:  # else images are gone since
                    own = embedding() if own is None else own
                    centres = unit_means(own, [inside for _, inside in parts])
                into = [number for number, _ in parts] or [edit["category"]]
                self.steps.append(Reshape([edit["category"]], into, centres))
            elif edit["edit"] == "merge":
                self.steps.append(Reshape(list(edit["categories"]), [edit["into"]]))
            else:
                self.steps.append(Reshape([edit["category"]], [JUNK]))

    @property
    def compares(self) -> bool:
        """Whether `shown` needs an embedding."""
        return any(step.centres is not None for step in self.steps)

    def shown(
        self, category: NDArray[np.int64], embedding: NDArray[np.float32] | None = None, junk: bool = True
    ) -> NDArray[np.int64]:
        """The ids (n,) that the categories (n,) of images with this embedding (n, P) have now; those of categories that
        were made junk are JUNK, or as they were (not `junk`)."""
        now = category.copy()
        for step in self.steps:
            if step.into == [JUNK] and not junk:
                continue
            here = np.flatnonzero(np.isin(now, step.categories))
            if step.centres is None:
                now[here] = step.into[0]
            elif len(here):
                assert embedding is not None, "compares"
                now[here] = np.array(step.into)[(embedding[here] @ step.centres.T).argmax(axis=1)]
        return now

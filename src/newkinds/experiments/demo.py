"""The demonstration: the main job on a folder of drawn creatures, then CPF beside its controls on the same ones."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..console import say
from .demo_controls import EPOCHS, compare_controls, methods_of
from .demo_folder import find_kinds, where_to_look


def demo(
    out: str | Path = "newkinds-demo", research: bool = False, hosts: str | Sequence[str] = "simgcd",
    seeds: Sequence[int] | None = None, epochs: int = EPOCHS,
) -> Iterator[str]:  # fmt: skip
    """Find the kinds in a partly labelled folder, judge the answer by the hidden truth and beside k-means; then train
    hosts alone, with controls and with CPF (same seeds, same schedule). What each part found as text; pages in `out`.

    `research`: only the second part, with all of its figures. `hosts`: a method's name, several, or "all": GCD, and
    those into which the paper plugs CPF. `seeds`: one run each; by default 0 to 4, and 0 to 2 for several hosts. To
    resume, make the same call again.

    >>> from newkinds.experiments.demo import demo
    >>> print(*demo("plug-in", research=True, hosts="all", seeds=[0, 1, 2]))
    """
    methods = methods_of(hosts)  # a wrong name is found before anything long begins
    if research:
        yield compare_controls(Path(out), methods, seeds, epochs).in_full
        return
    yield find_kinds(Path(out))
    say("that was the main job; what follows compares methods, for researchers: Ctrl-C ends it, and the answer stays")
    compared = compare_controls(Path(out), methods, seeds, epochs)
    yield f"{compared.in_short}\n\n{where_to_look(Path(out))}"  # last: it is what people do next

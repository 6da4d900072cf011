"""The verb that asks a finished run about other images, and shows what it says on a page."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..data.folder import files_of
from ..discovery.categories import Discovery
from ..discovery.finished import Prediction, Predictions, load
from ..ownership import require_page, write_output
from ..runs.run import Run

Images = str | Path | Iterable[str | Path]


def predict(
    run: str | Path, images: Images, *, report: str | Path | None = None, group_by_time: str | float | None = None,
    device: str = "auto",
) -> list[Prediction]:  # fmt: skip
    """Categories of images never seen, by a finished run; files and folders may be mixed.

    `report`: an HTML file to write, in which they are shown by category, those unlike every category in groups.
    `group_by_time`: photos that a camera took within so short a time, such as "10s", get one category.

    >>> newkinds.predict("runs/photos", "new-images/", report="new-images.html")
    """
    return answer_about(run, images, report, group_by_time, device).predictions


def answer_about(
    run: str | Path, images: Images, report: str | Path | None = None, group_by_time: str | float | None = None,
    device: str = "auto",
) -> Predictions:  # fmt: skip
    """The same, with the images that could not be read."""
    asked = [images] if isinstance(images, (str, Path)) else list(images)
    if report is not None:
        require_page(Path(report), inputs_of(run, asked), "predicted.html")
        Discovery.read(run)  # the page calls categories as people do: a run without any is refused before the work
    answer = load(run, device).answer(asked, group_by_time)
    if report is not None:
        _write_page(run, answer, asked, Path(report))
    return answer


def _write_page(run: str | Path, answer: Predictions, asked: Sequence[str | Path], file: Path) -> None:
    from ..discovery.report import render
    from ..discovery.report.predicted import page_of_predictions

    members = [prediction.as_member() for prediction in answer.predictions]
    named = list(map(str, asked))
    page = page_of_predictions(Run(run), members, answer.embedding, answer.table, answer.skipped, named)
    write_output(file, render(page))


def inputs_of(run: str | Path, images: Sequence[str | Path]) -> list[Path]:
    """The files that a prediction reads, which its output must not replace."""
    named = [Path(entry) for entry in images]
    return [*named, *files_of(named, []), *Run(run).own_files()]

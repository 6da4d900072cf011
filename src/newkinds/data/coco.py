"""COCO as input: each annotation is an item, and its category the label (https://cocodataset.org/#format-data).

COCO Camera Traps is read too, whose annotations may have no box, and whose sequences are groups."""

from pathlib import Path
from typing import Any

from ..console import say
from ..errors import NewkindsError
from ..text import plural
from .bursts import group_photos
from .json_lists import COCO, ListedItems, dicts_of, four_numbers, number_in, read_json, root_of_list, text_in
from .spellings import classes_of, refuse_two_spellings
from .splits import Known, as_benchmark
from .table import DATASETS, Table


@DATASETS.register(COCO)
def read_coco(
    path: str, root: str | None = None, known: Known | None = None, fraction: float = 0.5, split_seed: int = 0,
    tune: bool = False, group_by_time: str | float | None = None,
) -> Table:  # fmt: skip
    """COCO's JSON: each box is an item, labelled by its category, or unlabelled if that is none or says so.

    Files are below `root`, by default the folder of the JSON file. Boxes are in pixels of the upright image. Crowds are
    left out.
    """
    file = Path(path)
    content = read_json(file)
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise NewkindsError(f"{file} is not COCO: it has no list of images.")
    images = {_key(entry.get("id")): entry for entry in dicts_of(content["images"])}
    items = ListedItems(root_of_list(file, root), [text_in(entry.get("file_name")) for entry in images.values()])
    annotations = dicts_of(content.get("annotations"))
    names = {_key(entry.get("id")): text_in(entry.get("name")) for entry in dicts_of(content.get("categories"))}
    labels = classes_of([names.get(_key(one.get("category_id")), "") for one in annotations], str(file), "category")
    refuse_two_spellings(labels, str(file))
    has_boxes = any("bbox" in one for one in annotations)
    used: set[str] = set()
    crowds = 0
    for one, label in zip(annotations, labels, strict=True):
        key = _key(one.get("image_id"))
        image = images.get(key)
        if image is None or not text_in(image.get("file_name")):
            items.skip(f"annotation {str(one.get('id'))[:40]}", "there is no image for it in the list")
            continue
        used.add(key)
        if number_in(one.get("iscrowd")) == 1:
            crowds += 1
            continue
        _add(image, one.get("bbox"), label, items)
    rest = [image for key, image in images.items() if key not in used and text_in(image.get("file_name"))]
    if not has_boxes:  # whole images, of which some are labelled
        for image in rest:
            _add(image, None, None, items)
    elif rest:
        say(f"{plural(len(rest), 'image')} without an annotation: nothing of these is taken")
    if crowds:
        say(f"{plural(crowds, 'annotation')} of crowds left out")
    table = group_photos(items.table(file), group_by_time)
    return as_benchmark(table, known, fraction, split_seed, tune)


def _add(image: dict[str, Any], bbox: Any, label: str | None, items: ListedItems) -> None:
    """A box in an image; the image itself, if there is no box or the box is as large."""
    file, group = items.file_of(image["file_name"]), _key(image.get("seq_id")) or None
    if bbox is None or bbox == []:
        items.add(file, None, label, group)
        return
    try:
        numbers = four_numbers(bbox)
    except ValueError as error:
        items.skip(file, str(error))
        return
    if numbers == (0, 0, number_in(image.get("width")), number_in(image.get("height"))):
        items.add(file, None, label, group)
        return
    items.add_box(file, numbers, label, group)


def _key(value: Any) -> str:
    """An id, which may be a number or a text, as text; "" for anything else."""
    return str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""

"""Label Studio: tasks with predictions, what people decided as annotations, and the labeling interface.

https://labelstud.io/guide/predictions and https://labelstud.io/guide/task_format"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from ..._version import __version__
from ...data.fragments import Box, split_name
from ...files import write_whole
from ...runs.directory import RunDirectory
from ...text import spelt
from ..categories import Discovery
from ..edits import JUNK, POOL
from ..kinds import Member
from .image_export import DataSet, ExportedImage, data_set, record


@data_set("label-studio")
def to_label_studio(data: DataSet) -> list[ExportedImage]:
    """Label Studio: tasks.json with predictions and people's decisions, config.xml, and images/ to serve locally."""
    pictures = data.bring(lambda member: "images", boxes=True)
    names = {category.id: _choice(category.name) for category in data.categories}
    answers = _Answers(data.discovery)
    inside: dict[str, list[ExportedImage]] = {}  # file → the images in it
    for picture in pictures:
        inside.setdefault(picture.file, []).append(picture)
    tasks = [_task(file, own, answers, names) for file, own in inside.items()]
    data.write_json("tasks.json", tasks)
    has_boxes = {any(picture.box is not None for picture in own) for own in inside.values()}
    write_whole(data.target / "config.xml", _interface(list(names.values()), has_boxes))
    data.write_tables(pictures)
    return pictures


def _task(
    file: str, pictures: Sequence[ExportedImage], answers: "_Answers", names: Mapping[int, str]
) -> dict[str, Any]:
    """A picture: what people and the model say about it, or about each box in it."""
    has_boxes = any(picture.box is not None for picture in pictures)
    about = record(pictures[0].member)
    said: dict[str, list[dict[str, Any]]] = {"annotations": [], "predictions": []}
    sure: list[float] = []
    for number, picture in enumerate(pictures, start=1):
        decided, found = answers.of_person(picture.member), answers.of_model(picture.member)
        for kind, category in (("annotations", decided), ("predictions", found)):
            if category in names:
                answer = _box(picture, names[category], number) if has_boxes else _answer(names[category])
                said[kind].append(answer)
        if found in names:
            sure.append(picture.member.confidence)
    # relative to LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT, which is to be the folder of the export
    image = {"image": f"/data/local-files/?d={quote(file)}"}
    data = {**image, "path": split_name(about["path"])[0]} if has_boxes else {**image, **about}
    task: dict[str, Any] = {"data": data, "annotations": [], "predictions": []}
    if said["annotations"]:
        task["annotations"].append({"result": said["annotations"]})
    if said["predictions"]:
        prediction = {"model_version": f"newkinds {__version__}", "score": round(sum(sure) / len(sure), 4)}
        task["predictions"].append({**prediction, "result": said["predictions"]})
    return task


def _answer(choice: str) -> dict[str, Any]:
    return {"type": "choices", "from_name": "category", "to_name": "image", "value": {"choices": [choice]}}


def _box(picture: ExportedImage, choice: str, number: int) -> dict[str, Any]:
    """A box and its category; places are percentages of the picture's sides."""
    box = picture.box or Box(0, 0, picture.width, picture.height)
    sides = (picture.width, picture.height, picture.width, picture.height)
    place = {
        name: round(100 * pixels / side, 4)
        for name, pixels, side in zip(("x", "y", "width", "height"), box, sides, strict=True)
    }
    return {
        "id": f"box-{number}", "type": "rectanglelabels", "from_name": "box", "to_name": "image",
        "original_width": picture.width, "original_height": picture.height, "image_rotation": 0,
        "value": {**place, "rotation": 0, "rectanglelabels": [choice]},
        "meta": {"text": [spelt(picture.member.path)]},
    }  # fmt: skip


def _interface(choices: list[str], has_boxes: Collection[bool]) -> str:
    """The labeling interface, with a choice for every category: of whole images, of boxes, or of both."""
    lines = ["<View>", '  <Image name="image" value="$image"/>']
    if False in has_boxes:
        options = [f"    <Choice value={quoteattr(choice)}/>" for choice in choices]
        lines += ['  <Choices name="category" toName="image" choice="single">', *options, "  </Choices>"]
    if True in has_boxes:
        options = [f"    <Label value={quoteattr(choice)}/>" for choice in choices]
        lines += ['  <RectangleLabels name="box" toName="image">', *options, "  </RectangleLabels>"]
    return "\n".join([*lines, "</View>", ""])


def _choice(name: str) -> str:
    r"""A category's name in XML, which has no place for a few more characters than other files."""
    return re.sub("[\ufffe\uffff]", lambda match: f"\\u{ord(match[0]):04x}", spelt(name))


class _Answers:
    """What people and the model say about an image: the id of a category, or JUNK or POOL."""

    def __init__(self, discovery: Discovery) -> None:
        self._state = discovery.corrections()
        self._found = {member.path: member for member in discovery.found_members}
        # whatever categories are called now
        self._category = discovery.class_ids(RunDirectory(discovery.run).about_model().get("known", []))

    def of_person(self, member: Member) -> int:
        """Where a person put it, or else what its label says."""
        if member.status:
            return member.category_id
        labelled = self._category.get(member.given_label or "", JUNK)
        # a category may have been split: an image that fits its label is in one of the parts
        found = self._found[member.path].category_id
        return member.category_id if labelled == found else self._state.now(labelled)

    def of_model(self, member: Member) -> int:
        """What it found, as that is called now."""
        found = self._found[member.path]
        if found.category_id == POOL:
            return POOL
        if found.model_category_id is not None:
            return self._state.now(found.model_category_id)
        return self._state.now(found.category_id) if member.status in ("moved", "junk") else member.category_id

"""Label Studio: tasks with predictions, what people decided as annotations, and the labeling interface.

https://labelstud.io/guide/predictions and https://labelstud.io/guide/task_format"""

import re
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from ..._version import __version__
from ...files import write_whole
from ...runs.directory import RunDirectory
from ...text import spelt
from ..categories import Discovery
from ..edits import JUNK
from ..kinds import Member
from .image_export import DataSet, ExportedImage, data_set, record


@data_set("label-studio")
def to_label_studio(data: DataSet) -> list[ExportedImage]:
    """Label Studio: tasks.json with predictions and people's decisions, config.xml, and images/ to serve locally."""
    pictures = data.bring(lambda member: "images")
    names = {category.id: _choice(category.name) for category in data.categories}
    answers = _Answers(data.discovery)
    tasks = []
    for picture in pictures:
        member, about = picture.member, record(picture.member)
        decided, found = answers.of_person(member), answers.of_model(member)
        task: dict[str, Any] = {
            # relative to LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT, which is to be the folder of the export
            "data": {"image": f"/data/local-files/?d={quote(picture.file)}", **about},
            "annotations": [], "predictions": [],
        }  # fmt: skip
        if decided in names:
            task["annotations"].append({"result": [_answer(names[decided])]})
        if found in names:
            prediction = {"model_version": f"newkinds {__version__}", "score": member.confidence}
            task["predictions"].append({**prediction, "result": [_answer(names[found])]})
        tasks.append(task)
    data.write_json("tasks.json", tasks)
    write_whole(data.target / "config.xml", _interface(list(names.values())))
    data.write_tables(pictures)
    return pictures


def _answer(choice: str) -> dict[str, Any]:
    return {"type": "choices", "from_name": "category", "to_name": "image", "value": {"choices": [choice]}}


def _interface(choices: list[str]) -> str:
    """The labeling interface, with a choice for every category."""
    lines = [f"    <Choice value={quoteattr(choice)}/>" for choice in choices]
    image, top = '  <Image name="image" value="$image"/>', '  <Choices name="category" toName="image" choice="single">'
    return "\n".join(["<View>", image, top, *lines, "  </Choices>", "</View>", ""])


def _choice(name: str) -> str:
    r"""A category's name in XML, which has no place for a few more characters than other files."""
    return re.sub("[\ufffe\uffff]", lambda match: f"\\u{ord(match[0]):04x}", spelt(name))


class _Answers:
    """What people and the model say about an image: the id of a category, or JUNK."""

    def __init__(self, discovery: Discovery) -> None:
        self._state = discovery.corrections()
        self._found = {member.path: member for member in discovery.found_members}
        known = [category.name for category in discovery.found_categories if not category.is_new]
        labels = RunDirectory(discovery.run).about_model().get("known") or known  # whatever categories are called now
        self._category = {label: number for number, label in enumerate(labels)}

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
        if found.model_category_id is not None:
            return self._state.now(found.model_category_id)
        return self._state.now(found.category_id) if member.status in ("moved", "junk") else member.category_id

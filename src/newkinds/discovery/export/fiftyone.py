"""FiftyOne: https://docs.voxel51.com/user_guide/import_datasets.html#fiftyoneimageclassificationdataset"""

import os
from typing import Any

from ...text import spelt
from ..edits import JUNK
from .image_export import DataSet, ExportedImage, data_set, record


@data_set("fiftyone")
def to_fiftyone(data: DataSet) -> list[ExportedImage]:
    """FiftyOne: data/ and labels.json of a FiftyOneImageClassificationDataset, with confidences and attributes."""
    pictures = data.bring(lambda member: "data", stems=True)  # samples are told apart by names without endings
    place = {category.id: number for number, category in enumerate(data.categories)}
    labels: dict[str, dict[str, Any] | None] = {}
    for picture in pictures:
        number, about = picture.member.category_id, record(picture.member)
        label = {"label": place.get(number), "confidence": about.pop("confidence"), "attributes": about}
        labels[os.path.splitext(picture.name)[0]] = None if number == JUNK else label
    classes = [spelt(category.name) for category in data.categories]
    data.write_json("labels.json", {"classes": classes, "labels": labels})
    data.write_tables(pictures)
    return pictures

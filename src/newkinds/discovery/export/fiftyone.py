"""FiftyOne: https://docs.voxel51.com/user_guide/import_datasets.html#fiftyoneimageclassificationdataset, and for boxes
https://docs.voxel51.com/user_guide/import_datasets.html#fiftyoneimagedetectiondataset"""

import os
from typing import Any

from ...text import spelt
from ..edits import NO_CATEGORY
from .image_export import DataSet, ExportedImage, data_set, record


@data_set("fiftyone")
def to_fiftyone(data: DataSet) -> list[ExportedImage]:
    """FiftyOne: data/ and labels.json, with confidences and attributes.

    It is a FiftyOneImageClassificationDataset; if images are boxes, a FiftyOneImageDetectionDataset.
    """
    # samples are told apart by names without endings
    pictures = data.bring(lambda member: "data", stems=True, boxes=True)
    place = {category.id: number for number, category in enumerate(data.categories)}
    has_boxes = any(picture.box is not None for picture in pictures)
    labels: dict[str, Any] = {}
    for picture in pictures:
        number, about = picture.member.category_id, record(picture.member)
        label = {"label": place.get(number), "confidence": about.pop("confidence"), "attributes": about}
        sample = os.path.splitext(picture.name)[0]
        if not has_boxes:
            labels[sample] = None if number in NO_CATEGORY else label
            continue
        detections = labels.setdefault(sample, [])
        if number not in NO_CATEGORY:
            detections.append({"bounding_box": _shares(picture), **label})
    classes = [spelt(category.name) for category in data.categories]
    data.write_json("labels.json", {"classes": classes, "labels": labels})
    data.write_tables(pictures)
    return pictures


def _shares(picture: ExportedImage) -> list[float]:
    """x, y, width and height as shares of the picture's sides."""
    if picture.box is None:
        return [0.0, 0.0, 1.0, 1.0]
    sides = (picture.width, picture.height, picture.width, picture.height)
    return [round(pixels / side, 6) for pixels, side in zip(picture.box, sides, strict=True)]

"""COCO: one JSON file of images, categories and boxes (https://cocodataset.org/#format-data)."""

from ..._version import __version__
from ...text import spelt
from ..edits import JUNK
from .image_export import DataSet, ExportedImage, data_set, record


@data_set("coco")
def to_coco(data: DataSet) -> list[ExportedImage]:
    """COCO: images/ and annotations.json, where each image has one box as large as itself."""
    pictures = data.bring(lambda member: "images")
    images, annotations = [], []
    for number, picture in enumerate(pictures, start=1):
        member, about = picture.member, record(picture.member)
        images.append({
            "id": number, "file_name": picture.name, "width": picture.width, "height": picture.height,
            "path": about["path"], "given_label": about["given_label"], "status": about["status"],
        })  # fmt: skip
        if member.category_id != JUNK:
            annotations.append({
                "id": number, "image_id": number, "category_id": _coco_id(member.category_id), "iscrowd": 0,
                "bbox": [0, 0, picture.width, picture.height], "area": picture.width * picture.height,
                "segmentation": [], "score": member.confidence, "newkinds_id": member.category_id,
                "is_new": member.is_new, "unlike": member.unlike, "status": member.status,
            })  # fmt: skip
    categories = [
        {
            "id": _coco_id(c.id), "name": spelt(c.name), "supercategory": "new" if c.is_new else "known",
            "newkinds_id": c.id, "is_new": c.is_new,
        }
        for c in data.categories
    ]  # fmt: skip
    info = {"description": "Categories that newkinds recognised and discovered", "version": __version__}
    data.write_json(
        "annotations.json",
        {"info": info, "licenses": [], "images": images, "categories": categories, "annotations": annotations},
    )
    data.write_tables(pictures)
    return pictures


def _coco_id(category: int) -> int:
    """Many programs take 0 for the background; and an id stays what it was, whatever is merged or split."""
    return category + 1

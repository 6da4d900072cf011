"""COCO: one JSON file of images, categories and boxes (https://cocodataset.org/#format-data)."""

from typing import Any

from ..._version import __version__
from ...data.fragments import Box, split_name
from ...text import spelt
from ..edits import NO_CATEGORY
from .image_export import DataSet, ExportedImage, data_set, record


@data_set("coco")
def to_coco(data: DataSet) -> list[ExportedImage]:
    """COCO: images/ and annotations.json, with the boxes of a photo, or one box as large as the image."""
    pictures = data.bring(lambda member: "images", boxes=True)
    images: list[dict[str, Any]] = []
    annotations = []
    image_of: dict[str, int] = {}  # file → its id
    for number, picture in enumerate(pictures, start=1):
        member, about = picture.member, record(picture.member)
        own = {name: about[name] for name in ("path", "given_label", "status")}
        if picture.file not in image_of:
            image_of[picture.file] = len(images) + 1
            of_image = own if picture.box is None else {"path": split_name(about["path"])[0]}
            images.append({
                "id": len(images) + 1, "file_name": picture.name, "width": picture.width, "height": picture.height,
                **of_image,
            })  # fmt: skip
        if member.category_id not in NO_CATEGORY:
            box = picture.box or Box(0, 0, picture.width, picture.height)
            annotations.append({
                "id": number, "image_id": image_of[picture.file], "category_id": _coco_id(member.category_id),
                "iscrowd": 0, "bbox": list(box), "area": box.width * box.height,
                "segmentation": [], "score": member.confidence, "newkinds_id": member.category_id,
                "is_new": member.is_new, "unlike": member.unlike, **({} if picture.box is None else own),
                "status": member.status,
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

"""Hugging Face image-folder: https://huggingface.co/docs/datasets/image_dataset#imagefolder"""

from ...files import json_text, write_whole
from .image_export import DataSet, ExportedImage, data_set, record


@data_set("imagefolder")
def to_imagefolder(data: DataSet) -> list[ExportedImage]:
    """Hugging Face image-folder: train/ with metadata.jsonl, for load_dataset("imagefolder", data_dir=…)."""
    # no folders of categories: one called "test" would be taken for a split
    pictures = data.bring(lambda member: "train")
    lines = []
    for picture in pictures:
        about = record(picture.member)
        lines.append(json_text({"file_name": picture.name, "label": about.pop("category"), **about}, "metadata.jsonl"))
    write_whole(data.target / "train" / "metadata.jsonl", "".join(f"{line}\n" for line in lines))
    data.write_tables(pictures)
    return pictures

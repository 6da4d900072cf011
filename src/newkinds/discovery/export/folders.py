"""One folder for each category."""

from .image_export import DataSet, ExportedImage, data_set


@data_set("folders")
def to_folders(data: DataSet) -> list[ExportedImage]:
    """One folder per category, with copies of its images or links to them (--files)."""
    folders = data.folder_names()
    pictures = data.bring(lambda member: folders[member.category_id])
    data.write_tables(pictures, folders)
    return pictures

"""One folder for each category."""

from .dataset import DataSet, Picture, data_set


@data_set("folders")
def to_folders(data: DataSet) -> list[Picture]:
    """One folder per category, with copies of its images or links to them (--files)."""
    folders = data.folder_names()
    pictures = data.bring(lambda member: folders[member.category_id])
    data.write_tables(pictures, folders)
    return pictures

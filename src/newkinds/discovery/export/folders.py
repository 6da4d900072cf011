"""One folder for each category."""

from pathlib import Path

from ...text import plural
from ..categories import Discovery
from ..kinds import Member
from .base import EXPORTS
from .image_export import DataSet, Files

UNLIKE_NAME = "(unlike every category)"  # `newkinds discover` takes what is in such a folder as unlabelled


@EXPORTS.register("folders")
def to_folders(
    discovery: Discovery, target: Path, *, files: Files = "copy", images: str | Path | None = None, junk: bool = False,
    keep_unlike: bool = False,
) -> str:  # fmt: skip
    """One folder per category, with copies of its images or links to them (--files)."""
    data = DataSet(discovery, target, files, images, junk)
    folders, nobodys = data.folder_names(besides=UNLIKE_NAME)

    def is_nobodys(member: Member) -> bool:
        return member.is_unlike and not keep_unlike and member.given_label is None

    pictures = data.bring(lambda member: nobodys if is_nobodys(member) else folders[member.category_id])
    data.write_tables(pictures, folders)
    apart = sum(is_nobodys(picture.member) for picture in pictures)
    said = f"; {plural(apart, 'image')} in the folder '{nobodys}' (--keep-unlike: with the nearest category)"
    return data.sentence(pictures) + (said if apart else "")

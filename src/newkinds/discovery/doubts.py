"""Where the model disagrees with labels. Labels are the user's word: labelled images stay in their class, and what the
model would say is told beside it."""

from collections import Counter

from ..naming import bears_name
from .categories import Discovery
from .edits import JUNK


def doubts_of(discovery: Discovery) -> dict[str, int]:
    """Labelled image → the category where the model would put it, as that is now; but for those that people decided."""
    state = discovery.corrections()
    found = {}
    for member in discovery.members:
        if member.given_label is not None and member.model_category_id is not None and not member.status:
            number = state.now(member.model_category_id)
            if number not in (JUNK, member.category_id):
                found[member.path] = number
    return found


def label_notes(discovery: Discovery) -> dict[int, str]:
    """Category → what its labelled images say about its name: of a known class that has only these, and of other
    categories in which so many of a class lie that they may be a part of it."""
    state = discovery.corrections()
    labels: Counter[int] = Counter()  # of each class
    where: dict[int, Counter[int]] = {}  # category of the model → class → labelled images
    for member in discovery.found_members:
        if member.given_label is not None:
            of_class = member.category_id
            of_model = of_class if member.model_category_id is None else member.model_category_id
            labels[of_class] += 1
            where.setdefault(of_model, Counter())[of_class] += 1
    told: dict[int, list[str]] = {}
    for category in discovery.found_categories:
        number = state.now(category.id)
        inside = where.get(category.id, Counter())
        if not category.is_new and not inside[category.id]:
            told.setdefault(number, []).append(_alone(category.id, labels, where, state.names))
        for of_class, images in sorted(inside.items()):
            other = state.now(of_class)
            if other not in (JUNK, number) and bears_name(images, inside.total(), labels[of_class]):
                of_all = f"{images} of the {labels[of_class]} labelled images of that class"
                part = f"It may be a part of “{state.names[other]}”: {of_all} would be here without their label."
                told.setdefault(number, []).append(part)
    return {number: " ".join(sentences) for number, sentences in told.items() if number in state.names}


def _alone(number: int, labels: Counter[int], where: dict[int, Counter[int]], names: dict[int, str]) -> str:
    if not labels[number]:
        return "No image of this class has a label, so nothing says which category it is."
    places = [(inside[number], names[other]) for other, inside in where.items() if inside[number] and other in names]
    most = ", ".join(f"“{name}” ({images})" for images, name in sorted(places, reverse=True)[:3])
    images = "one labelled image" if labels[number] == 1 else f"{labels[number]} labelled images"
    return f"It has its {images} alone: by the model they lie in {most or 'other categories'}, among others."

"""Which image of a run a truth means: by its path, or else by its file name."""

import pytest

from newkinds.data.table import Table
from newkinds.errors import NewkindsError
from newkinds.evaluation.judge import true_classes


def truth(**classes: str) -> Table:
    """Paths (`a__1` is a/1.png) and their classes."""
    paths = [f"{name.replace('__', '/')}.png" for name in classes]
    return Table(paths, list(classes.values()), lambda _: pytest.fail("no image is opened"))


def test_an_image_whose_path_is_not_there_is_found_by_its_name_even_if_paths_fit_for_others() -> None:
    given = truth(unlabeled__1="cat", sorted__2="dog")
    found = true_classes(["unlabeled/1.png", "unlabeled/2.png", "unlabeled/3.png"], given)
    assert (found["unlabeled/1.png"], found["unlabeled/2.png"]) == ("cat", "dog")
    assert "unlabeled/3.png" not in found


def test_the_path_goes_before_the_name() -> None:
    found = true_classes(["a/1.png", "b/1.png"], truth(a__1="cat", b__1="dog"))
    assert (found["a/1.png"], found["b/1.png"]) == ("cat", "dog")
    assert "b/1.png" not in true_classes(["a/1.png", "b/1.png"], truth(a__1="cat")), "that is another image"


@pytest.mark.parametrize(
    ("paths", "given"),
    [
        (["a/1.png", "b/1.png"], truth(sorted__1="cat")),
        (["a/1.png"], truth(x__1="cat", y__1="dog")),
    ],
)
def test_names_that_mean_several_images_are_refused_or_left_out_if_paths_fit_for_others(
    paths: list[str], given: Table
) -> None:
    with pytest.raises(NewkindsError, match=r"several images are called 1\.png"):
        true_classes(paths, given)
    with_a_path = Table([*given.paths, "there.png"], [*given.labels, "owl"], given.open)
    found = true_classes([*paths, "there.png"], with_a_path)
    assert found["there.png"] == "owl"
    assert not set(paths) & found.keys()

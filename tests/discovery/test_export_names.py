"""Names of exported files and folders: safe on every disk, unique, and whatever they can be, what they were."""

import random
import unicodedata
from pathlib import Path

import pytest

from newkinds.discovery.export.names import LONGEST, Names

HOSTILE = [
    "", ".", "..", "...", "../cat", "../../etc/passwd", "/etc/passwd", "C:\\Windows", "a/b", "a\\b", "a\0b", "a\nb",
    ".hidden", "trailing.", "trailing ", " leading", "CON", "con", "nul.txt", "Com1", "LPT9.tar.gz", "aux ", "COM¹",
    "<script>alert(1)</script>", 'say "hi"', "what?", "a*b", "a|b", "a:b", "\u202egnp.exe", "not utf-8 \udcff",
    "x" * 255, "x" * 256, "x" * 300 + ".jpg", "é" * 200, "\U0001f99c" * 80, "Corgi", "corgi", "CORGI", "é", "e\u0301",
    "ß", "SS", "ss", "straße", "STRASSE", "-rf", "~", "$HOME", "`id`", "images.csv", "Categories.CSV", "\x7f",
    "a\u2028b",
]  # fmt: skip
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "0123456789¹²³")}


def assert_safe(name: str) -> None:
    assert 0 < len(name.encode()) <= LONGEST  # encodes: no surrogates
    assert not set(name) & set('<>:"/\\|?*')
    assert all(unicodedata.category(letter) not in ("Cc", "Cs", "Zl", "Zp") for letter in name)
    assert name[0] not in ". "
    assert name[-1] not in ". "
    assert name.partition(".")[0].strip().lower() not in RESERVED


def on_windows_or_mac(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def test_hostile_names_become_safe_ones_that_no_disk_takes_for_the_same(tmp_path: Path):
    names = Names(taken=("images.csv", "categories.csv"))

    made = [names.make(wanted) for wanted in HOSTILE * 2]

    for name in made:
        assert_safe(name)
        (tmp_path / name).mkdir()  # neither there already nor below another
    folders = {on_windows_or_mac(name) for name in made}
    assert len(folders) == len(made)
    assert not folders & {"images.csv", "categories.csv"}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(made)


@pytest.mark.parametrize("name", ["cat", "shiba inu", "猫", "a.b-c_d (1)", "new-06", "Spitz & Co", "100%", "x" * 255])
def test_a_harmless_name_stays_as_it_is(name: str):
    assert Names().make(name) == name


def test_endings_stay_and_long_names_have_room_for_their_number():
    names = Names()

    made = [names.make("é" * 200, ".jpeg") for _ in range(12)]

    assert len(set(made)) == 12
    assert made[-1].endswith("é-12.jpeg")
    assert all(len(name.encode()) <= LONGEST and name.endswith(".jpeg") for name in made)


def test_names_that_differ_only_in_their_endings():
    assert [Names().make("a", ending) for ending in (".jpg", ".png")] == ["a.jpg", "a.png"]
    one = Names(stems=True)
    assert [one.make("a", ending) for ending in (".jpg", ".png", ".JPG")] == ["a.jpg", "a-2.png", "a-3.JPG"]


def test_thousands_of_the_same_name_do_not_slow_down():
    names, tried = Names(), 0

    class Counted(set[str]):
        def __contains__(self, name: object) -> bool:
            nonlocal tried
            tried += 1
            return super().__contains__(name)

    names._taken = Counted()

    assert len({names.make("image", ".jpg") for _ in range(5000)}) == 5000
    assert tried <= 2 * 5000


@pytest.mark.parametrize("seed", range(20))
def test_random_names(seed: int):
    generator = random.Random(seed)
    letters = "aA. -/\\:\0\n\u202e\udc80éÉe\u0301ßS1\U0001f99c"
    stems, made = seed % 2 == 0, []
    names = Names(stems=stems)
    for _ in range(300):
        wanted = "".join(generator.choices(letters, k=generator.choice([0, 1, 2, 3, 254, 255, 256])))
        made.append(names.make(wanted, generator.choice([".png", ".JPG", *([] if stems else [""])])))

    for name in made:
        assert_safe(name)
    compared = [name.rpartition(".")[0] for name in made] if stems else made
    assert len({on_windows_or_mac(name) for name in compared}) == len(made)

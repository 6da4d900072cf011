"""Names are proposed with their evidence, which is what plain loops give; nothing is renamed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import newkinds
from naming import Lookup, pictured, unit
from newkinds import Discovery, NewkindsError, suggest_names
from newkinds.discovery import suggest
from newkinds.discovery.suggest import read_words

WORDS = ["cat", "wolf", "corgi", "shiba inu", "owl", "oak"]
PLAIN = ("{}",)
Cli = Callable[..., tuple[int, str, str]]


def by_place(category: int, place: int) -> tuple[int, int, int]:
    return category, place, 7


def sure(answers: dict[int, str], places: int = 6) -> Lookup:
    """Each category's images show what the word for it means."""
    words = dict(zip(WORDS, np.eye(len(WORDS)), strict=True))
    return Lookup({(c, p, 7): words[word] for c, word in answers.items() for p in range(places)}, words)


ANSWERS = {0: "cat", 1: "wolf", 2: "corgi", 3: "shiba inu", 4: "owl", 5: "oak"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """cat (0), dog (1) and four new categories (2 … 5) of six images each."""
    return pictured(tmp_path, by_place)


def first_words(found: suggest.Suggestions) -> dict[int, str]:
    return {one.category.id: one.proposals[0].word for one in found}


def files_of(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in run.rglob("*") if file.is_file()}


# ------------------------------------------------------------------------------------------------ evidence
def test_the_evidence_is_what_plain_loops_give(run: Path) -> None:
    generator = np.random.default_rng(3)
    words, templates = [f"word {i}" for i in range(9)], ("a {}.", "the {}, far away")
    sentences = {t.replace("{}", w): unit(generator.normal(size=5)) for w in words for t in templates}
    pictures = {(c, p, 7): unit(generator.normal(size=5)) for c in range(6) for p in range(6)}
    found = suggest_names(run, words, Lookup(pictures, sentences), templates=templates, per_category=4, top=3)
    of_word = {w: unit(sum(sentences[t.replace("{}", w)] for t in templates)) for w in words}
    typical: dict[int, list[np.ndarray]] = {}
    for category in range(6):
        members = [m for m in Discovery.read(run).members if m.category_id == category]
        places = sorted(range(6), key=lambda place: -members[place].confidence)[:4]
        typical[category] = [pictures[category, place, 7] for place in places]
    mean = {c: {w: sum(float(x @ of_word[w]) for x in typical[c]) / 4 for w in words} for c in range(6)}

    assert [one.category.id for one in found] == [c.id for c in Discovery.read(run).new]
    for one in found:
        c = one.category.id
        best = sorted(words, key=lambda w: -mean[c][w])
        assert [proposal.word for proposal in one.proposals] == best[:3]
        for proposal, following in zip(one.proposals, best[1:4], strict=True):
            word = proposal.word
            assert proposal.similarity == pytest.approx(mean[c][word], abs=1e-6)
            assert proposal.margin == pytest.approx(mean[c][word] - mean[c][following], abs=1e-6)
            agree = [max(words, key=lambda w: float(x @ of_word[w])) == word for x in typical[c]]
            assert (proposal.agree, one.images) == (sum(agree), 4)
            others = {o: mean[o][word] for o in range(6) if o != c}
            rival = max(others, key=lambda o: others[o])
            assert proposal.lead == pytest.approx(mean[c][word] - others[rival], abs=1e-6)
            assert proposal.rival == Discovery.read(run).category(rival).name


def test_known_classes_show_how_far_to_trust_it(run: Path) -> None:
    model = sure(ANSWERS)
    model.words = {**model.words, "Cat": model.words["cat"], "Dog": np.zeros(len(WORDS))}
    found = suggest_names(run, ["Cat", *WORDS[1:], "Dog"], model, templates=PLAIN)
    assert first_words(found) == {c: word for c, word in ANSWERS.items() if c > 1}
    check = found.check
    assert (check.known, check.in_list, check.right, check.wrong) == (2, 2, 1, [("dog", "wolf")])
    assert "Of the 2 known classes with a name in the list, 1 is named rightly (dog → wolf)" in found.text()
    without = suggest_names(run, WORDS[1:], sure({**ANSWERS, 0: "oak"}), templates=PLAIN)
    assert without.check.in_list == 0
    assert "None of the 2 known classes has a name in the list" in without.text()


@pytest.mark.parametrize("name", ["Shiba_inu", "017.Shiba-Inu", "shiba  inu"])
def test_a_class_is_found_in_the_list_however_it_is_written(name: str) -> None:
    assert suggest._plain(name) == suggest._plain("shiba inu") != suggest._plain("shiba")


def test_a_word_that_fits_another_category_better_is_said(run: Path) -> None:
    model = sure(ANSWERS)
    faint = unit(np.array([0, 1, 0.9, 0.9, 0.9, 0.9]))  # wolf comes first, but there is a bit of everything
    strong = unit(np.array([1, 0.9, 0, 0, 0, 0]))  # cat comes first, and wolf follows
    model.images = {**model.images, **{(4, p, 7): faint for p in range(6)}, **{(1, p, 7): strong for p in range(6)}}
    assert "'wolf' fits dog better than new-3 (#4)." in suggest_names(run, WORDS, model, templates=PLAIN).text()
    assert "better than" not in suggest_names(run, WORDS, sure(ANSWERS), templates=PLAIN).text()


def test_the_same_word_for_two_categories_is_said(run: Path) -> None:
    Discovery.read(run).rename("new-4", "owl")
    found = suggest_names(run, WORDS, sure({**ANSWERS, 3: "corgi", 5: "owl", 4: "cat"}), templates=PLAIN)
    by_id = {one.category.id: one for one in found}
    assert [c.id for c in by_id[2].shared_with] == [3]
    assert by_id[4].namesake == Discovery.read(run).category("cat")
    text = found.text()
    assert "'corgi' comes first for new-1 (#2) and new-2 (#3). If they are the same kind:" in text
    assert f"newkinds merge {run} '#2' '#3'" in text
    assert "'cat' is another category's name already. If new-3 (#4) belongs to it:" in text
    assert text.count("=corgi'") == 1  # only one of them can have the name
    assert "=cat'" not in text  # it would be refused
    assert "=owl'" not in text  # it is called so


def test_a_word_for_everything_is_no_name(run: Path) -> None:
    """Known classes are different kinds: a word that comes first for several of them tells nothing apart."""
    found = suggest_names(run, WORDS, sure({**dict.fromkeys(range(5), "oak"), 5: "owl"}), templates=PLAIN)
    text = found.text()
    assert text.count("'oak' comes first for 2 known classes too: it does not tell kinds apart here.") == 1
    assert "newkinds merge" not in text
    assert [line.split("#")[1] for line in text.splitlines() if "newkinds name" in line] == ["5=owl'"]
    assert {one["id"]: one["accept"] is None for one in found.as_json()["suggestions"]} == {
        2: True,
        3: True,
        4: True,
        5: False,
    }


# ------------------------------------------------------------------------------------------------ what people decided
def test_what_people_corrected_is_what_is_named(run: Path) -> None:
    found = Discovery.read(run)
    moved = [m.path for m in found.members if m.category_id == 3][:2]
    found.merge(["new-1", "new-2"])
    found.junk(category="new-3")
    found.rename("new-4", "old oak")
    found.move(moved, "birds", new=True)
    proposed = suggest_names(run, WORDS, sure(ANSWERS), templates=PLAIN)
    assert {one.category.name: one.category.size for one in proposed} == {"new-1": 10, "old oak": 6, "birds": 2}
    assert {one.category.name: one.proposals[0].word for one in proposed} == {
        "new-1": "corgi", "old oak": "oak", "birds": "shiba inu",
    }  # fmt: skip
    assert next(one for one in proposed if one.category.name == "new-1").proposals[0].agree == 6
    only = suggest_names(run, WORDS, sure(ANSWERS), categories=["#5", "birds"], templates=PLAIN)
    assert [one.category.name for one in only] == ["old oak", "birds"]
    with pytest.raises(NewkindsError, match="junk"):
        suggest_names(run, WORDS, sure(ANSWERS), categories=["#4"], templates=PLAIN)


def test_nothing_is_renamed_and_nothing_is_written(run: Path) -> None:
    Discovery.read(run).rename("new-1", "something")
    before = files_of(run)
    suggest_names(run, WORDS, sure(ANSWERS), templates=PLAIN).text()
    assert files_of(run) == before


@pytest.mark.parametrize("word", ["it's", "$(touch owned)", "a=b", "-x", "; touch owned", "<script>", 'a "b" \\ c'])
def test_the_command_gives_exactly_that_name(tmp_path: Path, run_cli: Cli, word: str) -> None:
    run = pictured(tmp_path, by_place, name="it's a $(run)")
    model = sure(ANSWERS)
    model.words = {(word if known == "owl" else known): row for known, row in model.words.items()}
    text = suggest_names(run, list(model.words), model, templates=PLAIN).text()
    line = next(line for line in text.splitlines() if line.startswith("  newkinds name") and "#4=" in line)
    seen_by_a_shell = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, cwd=tmp_path, check=True
    ).stdout.splitlines()
    assert seen_by_a_shell == shlex.split(line)
    assert not (tmp_path / "owned").exists()
    assert run_cli(*seen_by_a_shell[1:])[0] == 0
    assert Discovery.read(run).category(4).name == word


# ------------------------------------------------------------------------------------------------ images
def test_images_that_are_gone_are_skipped_and_counted(run: Path) -> None:
    members = sorted((m for m in Discovery.read(run).members if m.category_id == 2), key=lambda m: -m.confidence)
    photos = run.parent / "photos"
    (photos / members[0].path).unlink()
    (photos / members[1].path).write_bytes(b"no image")
    found = suggest_names(run, WORDS, sure(ANSWERS), templates=PLAIN, per_category=5)
    assert {one.category.id: one.images for one in found} == {2: 4, 3: 5, 4: 5, 5: 5}  # the next ones take their place
    assert [image.path for image in found.skipped] == [members[0].path, members[1].path]
    assert f"2 images skipped; the first is {members[0].path}: file not found" in found.text()
    for member in members:
        (photos / member.path).unlink(missing_ok=True)
    found = suggest_names(run, WORDS, sure(ANSWERS), templates=PLAIN)
    assert next(one for one in found if one.category.id == 2).proposals == []
    assert "new-1 (#2) has no image that can be read" in found.text()


def test_images_that_have_moved(run: Path) -> None:
    photos = run.parent / "photos"
    photos.rename(run.parent / "elsewhere")
    with pytest.raises(NewkindsError, match="--images FOLDER"):
        suggest_names(run, WORDS, sure(ANSWERS), templates=PLAIN)
    found = suggest_names(run, WORDS, sure(ANSWERS), templates=PLAIN, images=run.parent / "elsewhere")
    assert first_words(found)[2] == "corgi"
    photos.mkdir()
    with pytest.raises(NewkindsError, match=r"no image of .* can be read; the first is .*file not found"):
        suggest_names(run, WORDS, sure(ANSWERS), templates=PLAIN)


# ------------------------------------------------------------------------------------------------ words
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no word in .*two at least"),
        (b"\n \n\t\n", "no word"),
        (b"corgi\n", "only one word"),
        (b"corgi\nCORGI\n", "only one word"),
        ("Käfer\nÄpfel".encode("latin-1"), "not a text file in UTF-8"),
        (bytes(range(256)), "not a text file in UTF-8"),
        (b"corgi\nowl\x1b[31m\n", r"line 2: the name 'owl\\x1b\[31m' has"),
        ("corgi\nowl\u202egpj\n".encode(), "line 2: .*cannot be shown"),
        (b"corgi\n" + b"x" * 256, "line 2: .*longer than 255 bytes"),
        (b"corgi\n(junk)\n", "line 2: .*junk"),
    ],
)
def test_lists_of_words_that_cannot_be_used(run: Path, run_cli: Cli, content: bytes, reason: str) -> None:
    file = run.parent / "words.txt"
    file.write_bytes(content)
    with pytest.raises(NewkindsError, match=reason) as caught:
        read_words(file)
    assert str(file) in str(caught.value)
    status, out, err = run_cli("name", run, "--suggest", "--words", file)
    assert (status, out) == (1, "")
    assert "error: " in err
    assert "\x1b" not in err


def test_words_are_read_as_people_write_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "words.txt"
    file.write_bytes("\ufeffcorgi\r\n\r\n shiba inu \r\nCorgi\r\n柴犬\r\nit's {0} {}".encode())
    assert read_words(file) == ["corgi", "shiba inu", "柴犬", "it's {0} {}"]
    assert "1 word(s)" in capfd.readouterr().err
    with pytest.raises(NewkindsError, match="No such file"):
        read_words(tmp_path / "nowhere.txt")
    with pytest.raises(NewkindsError, match="cannot read the words"):
        read_words(tmp_path)


def test_the_words_that_come_along_can_all_be_names() -> None:
    words = read_words()
    assert len(words) == len(set(words)) > 500
    assert {"dog", "corgi", "bicycle", "oak"} <= set(words)


def test_a_hundred_thousand_words(run: Path) -> None:
    generator = np.random.default_rng(0)
    words = [f"kind {i}" for i in range(100_000)]
    rows = unit(generator.normal(size=(len(words), 8)))
    answers = {c: 16_661 * (c + 1) for c in range(6)}
    pictures = {(c, p, 7): rows[answers[c]] for c in range(6) for p in range(6)}
    model = Lookup(pictures, dict(zip(words, rows, strict=True)))
    found = suggest_names(run, words, model, templates=PLAIN, top=2)
    assert first_words(found) == {c: words[answers[c]] for c in range(2, 6)}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"templates": ["a photo"]}, "has no {} for the word"),
        ({"templates": []}, "no template"),
        ({"per_category": 0}, "one image of each"),
        ({"top": 0}, "one proposal"),
        ({"categories": ["new-9"]}, "no category 'new-9'"),
    ],
)
def test_choices_that_cannot_be(run: Path, options: dict[str, object], reason: str) -> None:
    with pytest.raises(NewkindsError, match=reason):
        suggest_names(run, WORDS, sure(ANSWERS), **options)


def test_more_proposals_than_words(run: Path) -> None:
    found = suggest_names(run, WORDS[:2], sure(dict.fromkeys(range(6), "cat")), templates=PLAIN, top=9)
    assert all([p.word for p in one.proposals] == ["cat", "wolf"] for one in found)
    assert all(one.proposals[-1].margin == 0 for one in found)


# ------------------------------------------------------------------------------------------------ command line
def test_the_terminal_and_json_say_the_same(run: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.parent / "words.txt").write_text("\n".join(WORDS))
    monkeypatch.setattr(suggest, "load_clip", lambda *_: sure(ANSWERS))
    arguments = ("name", run, "--suggest", "--words", run.parent / "words.txt", "--template", "{}", "--top", 1)
    status, shown, _ = run_cli(*arguments)
    assert status == 0
    assert "| new-1 (#2) |     corgi |      1.000 | +1.000 | 6 of 6 |     +1.000 |" in shown
    assert f"newkinds name {run} '#3=shiba inu'" in shown
    assert "no probability" in shown
    status, out, _ = run_cli(*arguments, "--json")
    read = json.loads(out)
    assert {one["id"]: one["proposals"][0]["word"] for one in read["suggestions"]} == {
        c: word for c, word in ANSWERS.items() if c > 1
    }
    assert read["suggestions"][0]["accept"] == ["newkinds", "name", str(run), "#2=corgi"]
    assert (read["model"], read["words"], read["skipped"]) == ("lookup", len(WORDS), [])
    assert run_cli(*arguments, "--only", "#3")[1].count("(#") == 1


def test_options_that_do_not_go_together(run: Path, run_cli: Cli) -> None:
    assert "--suggest renames nothing" in run_cli("name", run, "new-1=corgi", "--suggest")[2]
    assert "--words is for --suggest" in run_cli("name", run, "--words", "words.txt")[2]
    assert "--template is for --suggest" in run_cli("name", run, "new-1=corgi", "--template", "{}")[2]
    assert "new-1" in {category.name for category in Discovery.read(run).categories}
    assert json.loads(run_cli("name", run, "--json")[1])[2]["name"] == "new-1"


def test_without_the_package_it_says_what_is_needed(run: Path) -> None:
    code = (
        "import sys; sys.modules['open_clip'] = None; from newkinds.cli import main; "
        "assert 'torch' not in sys.modules; sys.exit(main(sys.argv[1:]))"
    )
    renamed = subprocess.run([sys.executable, "-c", code, "name", run, "new-1=corgi"], capture_output=True, text=True)
    assert renamed.returncode == 0, renamed.stderr
    asked = subprocess.run([sys.executable, "-c", code, "name", run, "--suggest"], capture_output=True, text=True)
    assert asked.returncode == 1
    assert "pip install 'newkinds[clip]'" in asked.stderr
    assert "--weights FILE" in asked.stderr
    assert newkinds.suggest_names is suggest_names

"""The verbs that correct a discovery, as typed."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from discovered import discovered
from newkinds import Discovery
from newkinds.cli import main


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return discovered(tmp_path / "run")


def typed(*words: object) -> int:
    return main([str(word) for word in words])


def names(run: Path) -> list[str]:
    return [category.name for category in Discovery.read(run).categories]


def test_a_session_at_the_terminal(run: Path, capsys) -> None:
    assert typed("name", run, "new-1=shiba inu", "#3=a=b") == 0
    assert typed("name", run, "a=b=a=c") == 0  # the old name has a "=" too
    assert typed("merge", run, "new-3", "new-4", "--into", "new-4") == 0
    assert typed("split", run, "new-4", "--into", "2") == 0
    assert typed("move", run, "photos/unlabeled/cat-3.jpg", "--to", "dog") == 0
    assert typed("move", run, "cat-4.jpg", "--to", "lynx", "--new") == 0
    assert typed("junk", run, "unlabeled/dog-1.jpg", "new-4-2") == 0
    assert typed("accept", run, "shiba inu", "dog-2.jpg") == 0
    assert names(run) == ["cat", "dog", "shiba inu", "a=c", "new-4", "lynx"]
    capsys.readouterr()
    assert typed("log", run) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[-1] for line in said][:3] == [
        "renamed 'new-1' to 'shiba inu'", "renamed 'new-2' to 'a=b'", "renamed 'a=b' to 'a=c'",
    ]  # fmt: skip
    while typed("undo", run) == 0:
        pass
    assert "nothing to undo" in capsys.readouterr().err
    assert names(run) == ["cat", "dog", "new-1", "new-2", "new-3", "new-4"]
    assert not any(member.status for member in Discovery.read(run).members)
    assert typed("redo", run) == 0
    assert "shiba inu" in names(run)
    capsys.readouterr()
    assert typed("log", run, "--json") == 0
    history = json.loads(capsys.readouterr().out)
    assert [entry["in_force"] for entry in history if entry["edit"] == "rename"] == [True, False, False]


def test_without_names_it_lists_the_categories_with_their_ids(run: Path, capsys) -> None:
    typed("name", run, "#4=owl")
    capsys.readouterr()
    assert typed("name", run) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert ["owl", "4", "new", "6"] in rows
    assert ["cat", "0", "known", "6"] in rows


def test_a_preview_changes_nothing(run: Path, capsys) -> None:
    assert typed("split", run, "new-2", "--preview") == 0
    said = capsys.readouterr().out
    assert said.count("3 images (50 %), mean confidence 0.") == 2
    assert all(f"    unlabeled/new-2-{number}.jpg\n" in said for number in range(6)), "every image of small parts"
    assert not (run / "edits.jsonl").exists()


def test_a_preview_of_large_parts_names_the_most_certain_images(tmp_path: Path, capsys) -> None:
    run = discovered(tmp_path / "run", per_category=30)
    assert typed("split", run, "new-2", "--preview") == 0
    said = capsys.readouterr().out
    assert said.count("… and 7 more") == 2
    sure = {m.path: m.confidence for m in Discovery.read(run).members}
    named = [line.strip() for line in said.splitlines() if line.startswith("    unlabeled")]
    assert len(named) == 16
    assert [sure[path] for path in named[:8]] == sorted((sure[path] for path in named[:8]), reverse=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["name", "new-9=x"], "there is no category 'new-9'. Did you mean"),
        (["name", "new-1"], "write OLD=NEW"),
        (["name", "new-1=cat"], "there is a category 'cat' already"),
        (["name", "new-1= "], "must not be empty"),
        (["name", "new-1=a\nb"], "line break"),
        (["name", "new-1=a\u202eb"], "cannot be shown"),
        (["name", "new-1=\udcff"], "cannot be shown"),
        (["name", "new-1=" + "é" * 128], "longer than 255 bytes"),
        (["name", "new-1=(junk)"], "junk"),
        (["merge", "new-1", "new-1"], "at least two"),
        (["merge", "new-1", "nothing"], "no category 'nothing'"),
        (["split", "new-1", "--into", "1"], "2 or more"),
        (["split", "new-1", "--into", "99"], "cannot be split into 99"),
        (["move", "nowhere.jpg", "--to", "cat"], "has no image nowhere.jpg"),
        (["move", "cat-1.jpg", "--to", "lynx"], "--new"),
        (["junk", "../../etc/passwd"], "has no image"),
        (["junk", "new-9"], "', a category?"),
        (["redo"], "nothing to redo"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(run: Path, words, says, capsys) -> None:
    verb, *rest = words
    assert typed(verb, run, *rest) == 1
    assert says in capsys.readouterr().err
    assert Discovery.read(run).revision == 0


def test_the_command_that_lists_categories_names_the_run(run: Path, capsys) -> None:
    assert typed("merge", run, "new-1", "nothing") == 1
    assert f"`newkinds name {shlex.quote(str(run))}` lists all of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "\"quoted\" 'name'", "../../up", "a,b;c", "שיבה", "é" * 127]
)
def test_odd_names_are_names(run: Path, name: str) -> None:
    assert typed("name", run, f"new-1={name}") == 0
    assert typed("move", run, "dog-1.jpg", "--to", name) == 0
    found = Discovery.read(run)
    assert found.category(name).id == 2
    assert found.category(name).size == 7
    assert found.run.resolve().parent.joinpath("up").exists() is False


def test_categories_that_are_gone_say_what_became_of_them(run: Path, capsys) -> None:
    typed("merge", run, "new-1", "new-2")
    typed("junk", run, "new-3")
    capsys.readouterr()
    assert typed("name", run, "#3=x") == 1
    assert "part of 'new-1' now" in capsys.readouterr().err
    assert typed("move", run, "cat-1.jpg", "--to", "#4") == 1
    assert "is junk" in capsys.readouterr().err


def test_two_images_of_one_name_must_be_told_apart(tmp_path: Path, capsys) -> None:
    run = discovered(tmp_path / "run", {"cat": 2})
    text = (run / "assignments.csv").read_text().replace("unlabeled/new-1-0.jpg", "elsewhere/new-1-1.jpg")
    (run / "assignments.csv").write_text(text)
    (run / "checksums.txt").unlink()
    assert typed("junk", run, "new-1-1.jpg") == 1
    assert "several images" in capsys.readouterr().err
    assert typed("junk", run, "elsewhere/new-1-1.jpg") == 0


def test_a_read_only_run_can_be_looked_at_and_says_why_it_cannot_be_edited(run: Path) -> None:
    if os.geteuid() == 0:
        (run / "edits.jsonl").mkdir()  # root may write anywhere: something else is in the way
    else:
        run.chmod(0o500)
    script = "import sys; from newkinds.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", script, "name", str(run), "new-1=x"], capture_output=True, text=True, check=False
    )
    run.chmod(0o700)
    assert done.returncode == 1
    assert "edits.jsonl" in done.stderr
    assert "bug" not in done.stderr


def test_the_verbs_need_neither_torch_nor_numpy(run: Path) -> None:
    script = (
        "import sys; from newkinds.cli import main\n"
        f"run = {str(run)!r}\n"
        "for words in (['name', run, 'new-1=x'], ['merge', run, 'new-2', 'new-3'],"
        " ['move', run, 'cat-1.jpg', '--to', 'x'], ['junk', run, 'cat-2.jpg'], ['accept', run, 'x'],"
        " ['undo', run], ['redo', run], ['log', run], ['name', run]):\n"
        "    assert main(words) == 0, words\n"
        "slow = {'torch', 'numpy', 'rich', 'yaml', 'PIL'} & set(sys.modules)\n"
        "assert not slow, slow\n"
        "assert main(['split', run, 'new-2']) == 0\n"
        "assert not {'torch', 'sklearn'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

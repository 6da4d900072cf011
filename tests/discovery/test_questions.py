"""What to look at next: every kind of question against plain loops, and nothing that people decided is asked again."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from discovered import discovered
from newkinds import Discovery, NewkindsError, next_questions
from newkinds.discovery.categories import Member
from newkinds.discovery.edits import POOL, POOL_NAME
from newkinds.discovery.kinds import category_names, category_of
from newkinds.discovery.questions import KINDS
from newkinds.discovery.split import read_embedding
from newkinds.runs.directory import RunDirectory
from newkinds.runs.records import Finding, Findings

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return discovered(tmp_path / "run", new=4, per_category=6, parts=1)


def written(folder: Path, rows: np.ndarray, members: list[Member], known: int, k: int) -> Discovery:
    """A run of images with this embedding in categories as they are said to be."""
    discovered(folder)
    run = RunDirectory(folder)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    run.write("embedding.safetensors", save({"embedding": unit.astype(np.float16)}))
    names = category_names([f"class-{c}" for c in range(known)], k)
    called = {**dict(enumerate(names)), POOL: POOL_NAME}
    members = [m._replace(category=called[m.category_id], is_new=m.category_id >= known) for m in members]
    inside = [[m for m in members if m.category_id == c] for c in range(k)]
    Discovery(folder, [category_of(c, n, c >= known, inside[c]) for c, n in enumerate(names)], members, []).write()
    return Discovery.read(folder)


def test_a_clear_member_of_each_unnamed_category_comes_first(run: Path) -> None:
    found = Discovery.read(run)
    rows, of = read_embedding(RunDirectory(run), 36), [m.category_id for m in found.members]
    questions = [q for q in next_questions(found, number=20) if q.kind == "name"]
    assert sorted(q.category_id for q in questions) == [2, 3, 4, 5]
    for question in questions:
        margins = {}
        for place in (place for place, number in enumerate(of) if number == question.category_id):
            likeness = {}
            for number in range(6):
                mean = rows[[i for i in range(36) if of[i] == number and i != place]].mean(axis=0)
                likeness[number] = float(rows[place] @ mean / np.linalg.norm(mean))
            margins[found.members[place].path] = likeness.pop(of[place]) - max(likeness.values())
        assert margins[question.path] == pytest.approx(max(margins.values()), abs=1e-5)
        assert found.category(question.category_id).name in question.reason


def test_large_categories_are_named_first_and_every_fifth_question_is_another_kind(tmp_path: Path) -> None:
    found = Discovery.read(discovered(tmp_path / "run", new=9, per_category=5))
    for size, category in enumerate(("new-3", "new-7"), start=1):
        found.junk([m.path for m in found.members if m.category == category][:size])
    questions = next_questions(found, number=11)
    assert [q.kind == "name" for q in questions] == [True, True, True, True, False] * 2 + [True]
    sizes = [found.category(q.category_id).size for q in questions if q.kind == "name"]
    assert sizes == sorted(sizes, reverse=True)


def test_parts_of_a_category_without_a_name_have_none_either(tmp_path: Path) -> None:
    found = Discovery.read(discovered(tmp_path / "run", new=1))
    found.split("new-1", 2)
    asked = [found.category(q.category_id).name for q in next_questions(found, only="name")]
    assert sorted(asked) == ["new-1", "new-1-2"]
    found.rename("new-1", "owl")
    assert [found.category(q.category_id).name for q in next_questions(found, only="name")] == ["new-1-2"]


def test_a_category_whose_image_was_moved_to_another_may_be_one_with_that(run: Path) -> None:
    found = Discovery.read(run)
    asked = next(q for q in next_questions(found, only="name") if q.category_id == 3)
    found.move([asked.path], "cat")
    assert 3 not in {q.category_id for q in next_questions(found, only="name")}
    (question,) = next_questions(found, only="merge")
    assert (question.category_id, question.other_id, question.kind) == (3, 0, "merge")
    assert "'new-2' is 'cat' now" in question.reason
    assert question in next_questions(found, number=4)  # among the first, as a name would be
    found.move([question.path], "dog")  # a mixture: its name is asked for after those of the others
    assert next_questions(found, only="merge") == []
    assert [q.category_id for q in next_questions(found, only="name")] == [2, 4, 5, 3]


def test_who_asks_for_five_at_a_time_gets_questions_of_all_kinds(tmp_path: Path) -> None:
    axes = np.eye(8)
    rows = np.concatenate([around(axes[c], 20, 0.1, c) for c in range(3)])
    of = [0] * 20 + [1, 2] * 10 + [0] * 20
    members = [m._replace(unlike=1.5) if place < 2 else m for place, m in enumerate(unlabelled(of))]
    found = written(tmp_path / "run", rows, members, 0, 3)
    kinds = set()
    for _ in range(4):
        questions = next_questions(found, number=5)
        kinds |= {question.kind for question in questions}
        found.accept([question.path for question in questions][:5])
    assert {"name", "typical", "doubt", "pool"} <= kinds


def test_typical_images_stand_for_most_that_are_unlike_what_was_seen(run: Path) -> None:
    found = Discovery.read(run)
    found.accept([category.exemplars[0] for category in found.new])
    rows = read_embedding(RunDirectory(run), 36).astype(float)
    seen = {place for place, m in enumerate(found.members) if m.status or m.given_label is not None}
    asked = next_questions(found, number=12, only="typical")
    for question in asked:
        gain = {}
        for x, member in enumerate(found.members):
            same = [i for i, other in enumerate(found.members) if other.category_id == member.category_id]
            best = {i: max([max(rows[i] @ rows[j], 0) ** 3 for j in same if j in seen], default=0) for i in same}
            unseen = [i for i in same if i not in seen]
            if x in unseen:
                gain[x] = sum(max(max(rows[i] @ rows[x], 0) ** 3 - best[i], 0) for i in unseen)
        chosen = next(place for place, m in enumerate(found.members) if m.path == question.path)
        assert gain[chosen] == pytest.approx(max(gain.values()), rel=1e-4)
        seen.add(chosen)


def test_what_was_decided_is_never_asked_again(run: Path) -> None:
    found = Discovery.read(run)
    found.rename("new-1", "owl")
    found.accept(category="new-2")
    found.junk(category="new-3")
    moved = next(m.path for m in found.members if m.category == "cat" and m.given_label is None)
    found.move([moved], "new-4")
    decided = {m.path for m in found.members if m.status}
    while questions := next_questions(found, number=7):
        shown = {q.path for q in questions} | {q.other_path for q in questions if q.other_path}
        assert len(shown) >= len(questions)
        assert not shown & decided
        assert not any(q.kind == "name" for q in questions)  # 'new-4' has an image that a person put there
        found.accept(sorted(shown))
        decided |= shown
    open_ones = [m.path for m in found.members if m.path not in decided and m.given_label is None]
    assert open_ones == []  # sooner or later every image is asked about


def test_no_image_is_asked_about_twice_and_fewer_are_asked_if_there_are_no_more(run: Path) -> None:
    questions = next_questions(Discovery.read(run), number=1000)
    paths = [q.path for q in questions] + [q.other_path for q in questions if q.other_path]
    assert len(paths) == len(set(paths)) == 34  # but for the two labelled ones


def around(centre: np.ndarray, number: int, noise: float, seed: int) -> np.ndarray:
    return centre + noise * np.random.default_rng(seed).normal(size=(number, len(centre)))


def unlabelled(of: list[int]) -> list[Member]:
    return [Member(f"{place}.jpg", None, "", True, 0.9, 0.5, number) for place, number in enumerate(of)]


def test_a_doubtful_image_is_asked_about_with_the_category_that_it_is_like(tmp_path: Path) -> None:
    axes = np.eye(8)
    between = (axes[2] + 1.1 * axes[3])[None]
    rows = np.concatenate([around(axes[c], 9, 0.1, c) for c in range(4)] + [between])
    of = [c for c in range(4) for _ in range(9)] + [2]
    found = written(tmp_path / "run", rows, unlabelled(of), 0, 4)
    question = next_questions(found, only="doubt", number=1)[0]
    assert (question.path, question.category_id, question.other_id) == ("36.jpg", 2, 3)
    assert "more like 'new-4' than like 'new-3'" in question.reason


def test_copies_of_one_doubtful_image_are_not_asked_about_in_a_row(tmp_path: Path) -> None:
    axes = np.eye(8)
    copies = around(axes[0] + 0.9 * axes[1], 5, 0.001, 9)  # the most doubtful ones, all of them alike
    rows = np.concatenate([around(axes[0], 7, 0.2, 0), copies, around(axes[1], 12, 0.2, 1)])
    of = [0] * 12 + [1] * 12
    found = written(tmp_path / "run", rows, unlabelled(of), 0, 2)
    asked = [q.path for q in next_questions(found, only="doubt", number=6) if q.category_id == 0]
    assert len([path for path in asked if path in {f"{i}.jpg" for i in range(7, 12)}]) == 1


def test_a_label_is_doubted_if_a_check_and_the_embedding_contradict_it(tmp_path: Path) -> None:
    axes = np.eye(8)
    rows = np.concatenate([around(axes[c], 6, 0.1, c) for c in range(3)])
    of = [0] * 6 + [1] * 6 + [2] * 6
    of[11] = of[5] = 0
    members = [Member(f"{i}.jpg", f"class-{c}" if c < 2 else None, "", False, 0.9, 0.5, c) for i, c in enumerate(of)]
    found = written(tmp_path / "run", rows, members, 2, 3)
    assert next_questions(found, only="label") == []  # nobody has doubts
    Findings.write([Finding(f"{i}.jpg", "wrong label", 0.5, "") for i in (5, 11)], RunDirectory(found.run))
    (question,) = next_questions(found, only="label")  # 5.jpg lies where it should
    assert (question.path, question.category_id, question.other_id) == ("11.jpg", 0, 1)
    found.accept(["11.jpg"])
    assert next_questions(found, only="label") == []


def test_two_categories_that_mix_like_one_are_asked_about_until_people_know_both(tmp_path: Path) -> None:
    axes = np.eye(8)
    one = around(axes[3], 24, 0.1, 3)
    rows = np.concatenate([around(axes[c], 12, 0.1, c) for c in range(3)] + [one])
    of = [c for c in range(3) for _ in range(12)] + [3, 4] * 12
    members = [Member(f"{i}.jpg", "class-0" if i == 0 else None, "", True, 0.9, 0.5, c) for i, c in enumerate(of)]
    found = written(tmp_path / "run", rows, members, 1, 5)
    (question,) = next_questions(found, only="merge")
    assert {question.category_id, question.other_id} == {3, 4}
    at = {m.path: m.category_id for m in found.members}
    assert (at[question.path], at[question.other_path]) == (question.category_id, question.other_id)
    found.rename(3, "owl")
    assert len(next_questions(found, only="merge")) == 1  # 'owl' and one that nobody has named
    found.rename(4, "barn owl")
    assert next_questions(found, only="merge") == []


def test_of_images_unlike_every_category_one_of_each_group_is_asked_about(tmp_path: Path) -> None:
    axes = np.eye(8)
    rows = np.concatenate(
        [around(axes[c], 10, 0.1, c) for c in range(3)] + [around(axes[5], 6, 0.1, 5), around(axes[6], 3, 0.1, 6)]
    )
    of = [c for c in range(3) for _ in range(10)] + [2] * 9
    members = [m._replace(unlike=1.5) if place >= 30 else m for place, m in enumerate(unlabelled(of))]
    questions = next_questions(written(tmp_path / "run", rows, members, 0, 3), only="pool")
    assert [int(q.path.removesuffix(".jpg")) // 36 for q in questions] == [0, 1]  # 30 to 35 first, then 36 to 38
    assert "5 more images like it" in questions[0].reason


def test_what_is_not_placed_yet_is_asked_about_with_its_nearest_category(tmp_path: Path) -> None:
    axes = np.eye(8)
    rows = np.concatenate([around(axes[c], 10, 0.1, c) for c in range(3)] + [around(axes[5] + axes[1], 4, 0.1, 5)])
    found = written(tmp_path / "run", rows, unlabelled([c for c in range(3) for _ in range(10)] + [POOL] * 4), 0, 3)
    (question,) = next_questions(found, only="pool")
    assert question.path in {member.path for member in found.pool}
    assert (question.category_id, question.other_id) == (POOL, 1)
    assert "in no category yet, and 3 more images like it" in question.reason
    every = next_questions(found, number=100)
    assert sum(q.category_id == POOL for q in every) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_that_answer_are_verbs_that_work(run: Path, run_cli: Cli, kind: str) -> None:
    """Of each kind of question that there is here, with names that a shell or a terminal could stumble over."""
    found = Discovery.read(run)
    given = {"NAME": 'it\'s a "kind"', "CATEGORY": "dog"}
    for question in next_questions(found, only=kind, number=1):
        for answer in question.answers(str(run)):
            words = shlex.split(shlex.join(answer.command))
            words = [word.replace("NAME", given["NAME"]).replace("CATEGORY", given["CATEGORY"]) for word in words]
            status, _, error = run_cli(*words[1:])
            assert status == 0, error
            assert run_cli("undo", str(run))[0] == 0


def test_the_command_line_shows_questions_with_reasons(run: Path, run_cli: Cli) -> None:
    status, out, _ = run_cli("next", str(run), "--number", "3")
    assert status == 0
    assert out.count("newkinds name ") == 3
    assert "which nobody named" in out
    status, out, _ = run_cli("next", str(run), "--number", "5", "--only", "doubt", "--json")
    listed = json.loads(out)
    assert status == 0
    assert [one["kind"] for one in listed] == ["doubt"] * 5
    assert listed[0]["answers"][0]["command"][:2] == ["newkinds", "accept"]


def test_five_are_asked_by_default_and_other_categories_are_called_by_their_names(run: Path, run_cli: Cli) -> None:
    found = Discovery.read(run)
    assert len(next_questions(found)) == 5
    (before,) = next_questions(found, only="doubt", number=1)
    found.rename(before.other_id, "barn owl")
    (doubt,) = next_questions(found, only="doubt", number=1)
    assert (doubt.path, doubt.other_name) == (before.path, "barn owl")
    assert "it is 'barn owl'" in [answer.meaning for answer in doubt.answers("run")]
    status, _, error = run_cli("next", str(run), "-n", "5")
    assert status == 2
    assert "there is no option -n. Did you mean '--number'?" in error


def test_what_a_typical_image_stands_for_is_said_plainly(run: Path) -> None:
    reasons = [question.reason for question in next_questions(Discovery.read(run), number=20, only="typical")]
    several = r"it stands for \d+ images of '[^']+', which look more like it than like any that you have labelled or"
    assert any(re.match(several, reason) for reason in reasons)
    assert any(re.match(r"nothing in '[^']+' that you have labelled or decided looks like it", one) for one in reasons)


def test_bad_input_is_refused_in_a_sentence(run: Path, run_cli: Cli) -> None:
    assert "'nonsense'" in run_cli("next", str(run), "--only", "nonsense")[2]
    assert "say 1 or more" in run_cli("next", str(run), "--number", "0")[2]
    (run / "embedding.safetensors").unlink()
    status, _, error = run_cli("next", str(run))
    assert status == 1
    assert "embedding.safetensors" in error
    with pytest.raises(NewkindsError, match="is not a run directory"):
        next_questions(Discovery.read(run.parent))


def test_a_file_name_cannot_write_into_the_terminal_or_the_command(tmp_path: Path, run_cli: Cli) -> None:
    rows = np.random.default_rng(0).normal(size=(8, 4))
    names = ["-rf.jpg", "a;b.jpg", "c\nd.jpg", "e\x1b[2J.jpg", "$(f).jpg", "g 'h'.jpg", 'i".jpg', "j\\x0a.jpg"]
    members = [Member(name, None, "", True, 0.9, 0.5, place % 2) for place, name in enumerate(names)]
    found = written(tmp_path / "run", rows, members, 0, 2)
    questions = next_questions(found, number=8)
    assert {path for q in questions for path in (q.path, q.other_path) if path} == set(names)
    _, out, _ = run_cli("next", str(found.run), "--number", "8")
    assert "\x1b" not in out
    lines = [line.split(":", 1)[1] for line in out.splitlines() if "newkinds accept" in line]
    for line in lines:
        words = shlex.split(line)
        assert words[:2] == ["newkinds", "accept"]
        assert run_cli(*words[1:])[0] == 0
    assert all(m.status == "accepted" for m in Discovery.read(found.run).members)


def test_questions_need_no_torch(run: Path) -> None:
    code = (
        f"import sys; from newkinds.cli import main\nmain(['next', {str(run)!r}])\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'timm', 'sklearn')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "What is this?" in done.stdout

"""Parts from outside: entry points of other packages, and plugin files."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.mixture import GaussianMixture

import newkinds
from conftest import save_image
from newkinds import plugins
from newkinds.assigners import ASSIGNERS
from newkinds.data import DATASETS
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.errors import NewkindsError
from newkinds.files import checksum
from newkinds.methods import METHODS

Cli = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("registries_as_before")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "plugins.md"
METHOD = '''
from dataclasses import dataclass
from newkinds.methods import METHODS

SimGCD = METHODS["simgcd"]

class Tilted(SimGCD):
    """SimGCD with a setting that may be negative."""

    @dataclass
    class Config(SimGCD.Config):
        tilt: float = -0.5
'''
REGISTERED = METHOD.replace("class Tilted", '@METHODS.register("tilted")\nclass Tilted')
SMALL = ("--set", "train.batch_size=16")
TINY = ("--set", "data.categories=4", "--set", "data.per_category=8", *SMALL, "--epochs", 2)


def test_parts_of_another_package_are_listed_and_used(
    package: Callable[..., None], run_cli: Cli, tmp_path: Path
) -> None:
    parts = """
from newkinds.assigners import ASSIGNERS
from newkinds.data import DATASETS
from newkinds.encoders.organizers import ORGANIZERS

class Same(ORGANIZERS["none"]):
    "The class token."

class Centres(ASSIGNERS["sskmeans"]):
    "Nearest centres."

def few(categories: int = 4):
    "A few creatures."
    return DATASETS["creatures"](categories=categories, per_category=8)

def by_hand(features, y):
    "As somebody says."
    return COUNTERS["ward"](features, y)
"""
    package(
        "newkinds_extra",
        METHOD + parts,
        methods={"tilted": "newkinds_extra:Tilted"},
        organizers={"same": "newkinds_extra:Same"},
        assigners={"centres": "newkinds_extra:Centres"},
        datasets={"few": "newkinds_extra:few"},
        counters={"by-hand": "newkinds_extra:by_hand"},
    )
    assert "newkinds_extra" not in sys.modules, "entry points are loaded only when they are asked for"
    listed = run_cli("list")[1]
    for line in ("tilted +SimGCD with a", "same +The class", "centres +Near", "few +A few", "by-hand +As"):
        assert re.search(rf"^  {line}.* \(from newkinds_extra 1.5\)$", listed, re.MULTILINE), line
    assert not re.search("^  (simgcd|cpf|creatures|ward) .*from", listed, re.MULTILINE)
    training = ("--method", "tilted", "--organizer", "same", "--assigner", "centres", "--epochs", 1)
    status, _, err = run_cli("train", "few", "--out", tmp_path / "run", *training, *SMALL, "--set", "method.tilt=-2")
    assert status == 0, err
    assert "tilt: -2.0" in (tmp_path / "run" / "config.yaml").read_text()
    outside = json.loads((tmp_path / "run" / "protocol.json").read_text())["outside"]
    assert {section: part["name"] for section, part in outside.items()} == {
        "data": "few", "organizer": "same", "method": "tilted", "assigner": "centres",
    }  # fmt: skip
    for registry in (METHODS, ORGANIZERS, DATASETS):  # as if the package were not installed
        del registry._entries[{"method": "tilted", "organizer": "same", "data set": "few"}[registry.kind]]
    status, _, err = run_cli("eval", tmp_path / "run")
    assert status == 1
    assert re.search("this run needs the .* from newkinds_extra 1.5: install or import it.", err)


def of_page(name: str) -> str:
    """A file as docs/plugins.md shows it, in one block or in several."""
    blocks = re.findall(rf"<!-- file: {re.escape(name)} -->\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks, name
    return "\n".join(blocks)


def test_the_example_of_the_page_is_a_package_that_trains_and_predicts(
    package: Callable[..., None], run_cli: Cli, tmp_path: Path
) -> None:
    groups = dict(re.findall(r'entry-points."newkinds.(\w+)"\]\n(.+)', of_page("pyproject.toml")))
    assert groups.keys() == {"methods", "organizers", "assigners", "tunings"}
    points = {group: dict([line.replace('"', "").split(" = ")]) for group, line in groups.items()}
    package("my_kinds", of_page("my_kinds.py"), **points)
    named = {group.removesuffix("s"): next(iter(point)) for group, point in points.items()}
    options = [word for part, name in named.items() for word in (f"--{part}", name)]
    status, _, err = run_cli("train", "creatures", "--out", tmp_path / "run", *options, *TINY)
    assert status == 0, err
    outside = json.loads((tmp_path / "run" / "protocol.json").read_text())["outside"]
    assert {part: (of["name"], of["origin"]) for part, of in outside.items()} == {
        part: (name, "my_kinds 1.5") for part, name in named.items()
    }
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    trained = newkinds.load(tmp_path / "run").model
    assert trained.encoder.organizer.out.weight.any(), "it started at zero"
    assert not (trained.encoder.backbone.tuning.scale == 1).all()
    status, out, err = run_cli("predict", tmp_path / "run", save_image(tmp_path / "a.png"))
    assert (status, out.count("\n")) == (0, 2), err


def test_the_mixture_of_the_page_is_that_of_scikit_learn(tmp_path: Path) -> None:
    (file := tmp_path / "my_kinds.py").write_text(of_page("my_kinds.py"))
    plugins.load_plugin(file)
    torch.manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(3, 8), dim=1)
    rows = torch.nn.functional.normalize(centres.repeat_interleave(20, 0) + 0.15 * torch.randn(60, 8), dim=1)
    labels = torch.full((60,), -1)
    labels[:5], labels[20:25] = 0, 1
    assigner = ASSIGNERS["mixture"](8, 2, 3)
    assigner.fit(rows, labels)
    theirs = GaussianMixture(3, covariance_type="spherical", means_init=centres.numpy(), reg_covar=1e-4)
    shares = assigner(rows).softmax(dim=1)
    assert np.allclose(shares, theirs.fit(rows.numpy()).predict_proba(rows.numpy()), atol=1e-3)
    assert (shares.argmax(dim=1) == torch.arange(3).repeat_interleave(20)).all(), "known classes keep their numbers"


def test_the_data_set_counter_check_and_export_of_the_page_are_used_as_it_says(
    run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_data.py").write_text(of_page("my_data.py"))
    drawn = DATASETS["creatures"](categories=4, per_category=6)
    for row, (path, true) in enumerate(zip(drawn.paths, drawn.truth or [], strict=True)):
        file = tmp_path / "birds" / ("test" if row % 6 == 0 else "train") / str(true) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        (Image.new("RGB", (64, 64)) if row == 1 else drawn.open(row)).save(file)
    [block] = re.findall(r"<!-- command: data -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    tiny = {"train": ["--backbone", "tiny", "--epochs", "1", *SMALL], "check": ["--backbone", "tiny"]}
    said = {}
    for line in block.splitlines():
        _, verb, *arguments = shlex.split(line)
        status, out, err = run_cli(verb, *arguments, *tiny.get(verb, ()))
        assert status == (1 if verb == "check" else 0), f"{line}\n{out}\n{err}"  # it found something
        said[verb] = out
    assert re.search("all [0-9]+ contracts held", said["plugin"])
    assert re.search("^dark +1 image is nearly black", said["check"], re.MULTILINE)
    judged = json.loads((tmp_path / "runs" / "birds" / "evaluation.json").read_text())
    assert judged["test"]["evaluated"] == 4
    assert judged["protocol"]["evaluated"].endswith("; 4 test images")
    assert "(silhouette; " in said["count"]
    lines = [json.loads(line) for line in (tmp_path / "birds.jsonl").read_text().splitlines()]
    assert len(lines) == 20


def test_broken_and_taken_entry_points_are_reported_and_stop_nothing(
    package: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    own, before = METHODS["simgcd"], list(METHODS._entries)
    package("broken_one", "import nowhere_at_all", methods={"broken": "broken_one:Broken"})
    package("thief", METHOD, methods={"simgcd": "thief:Tilted", "gone": "thief:Gone"})
    package("good_one", REGISTERED, methods={"tilted": "good_one:Tilted"})  # registers itself, too
    for _ in range(2):
        assert list(METHODS) == sorted([*before, "tilted"])
    said = capfd.readouterr().err
    assert said.count("the method 'broken' of the package broken_one 1.5 is left out: ModuleNotFoundError") == 1
    assert said.count("the method 'simgcd' of the package thief 1.5 is left out: the name is taken.") == 1
    assert said.count("the method 'gone' of the package thief 1.5 is left out: AttributeError") == 1
    assert METHODS["simgcd"] is own
    assert METHODS.origin("tilted") == "good_one 1.5"
    with pytest.raises(NewkindsError, match="no method called 'broken'"):
        METHODS["broken"]


def test_a_plugin_trains_resumes_and_predicts(
    run_cli: Cli, tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    file, run, image = tmp_path / "my_tilted.py", tmp_path / "run", save_image(tmp_path / "a.png")
    file.write_text(REGISTERED)
    training = ("train", "creatures", "--method", "tilted", "--out", run, *TINY)
    assert "Did you mean" in run_cli(*training, "--organizer", "cfp", "--plugin", file)[2]
    with killed_after_an_epoch():
        run_cli(*training, "--plugin", file)
    recorded = json.loads((run / "protocol.json").read_text())["outside"]
    assert recorded == {"method": {"name": "tilted", "origin": str(file), "checksum": checksum(file)}}
    status, _, err = run_cli(*training, "--plugin", file)
    assert status == 0, err
    assert err.count("epoch 1/2") == 1, "that was before it was killed"
    assert "changed" not in err
    status, out, err = run_cli("predict", run, image, "--plugin", file, "--plugin", file)
    assert (status, out.count("\n")) == (0, 2), err
    assert f"method tilted from {file}, sha256 {checksum(file)}" in run_cli("eval", run, "--plugin", file)[1]

    centres = tmp_path / "my_centres.py"
    centres.write_text("from newkinds.assigners import ASSIGNERS\n@ASSIGNERS.register('centres')\n")
    with centres.open("a") as text:
        text.write("class Centres(ASSIGNERS['sskmeans']): ...\n")
    assert run_cli("assign", run, "--assigner", "centres", "--plugin", file, "--plugin", centres)[0] == 0
    said = run_cli("eval", run, "--plugin", file, "--plugin", centres)[1]
    assert f"assigner centres from {centres}, sha256 {checksum(centres)}" in said
    assert run_cli("assign", run, "--plugin", file, "--plugin", centres)[0] == 0  # the method's own again

    file.write_text(REGISTERED + "# changed\n")
    assert "plugins or packages changed since" in run_cli(*training, "--plugin", file)[2]

    del METHODS._entries["tilted"]  # as in a new process
    del sys.modules["my_tilted"]
    status, _, err = run_cli("predict", run, image)
    assert (status, err) == (1, f"error: this run needs the method 'tilted' from {file}: add --plugin {file}.\n")
    assert "my_tilted" not in sys.modules, "a run directory never has code executed by itself"


def test_a_cell_that_is_run_again_replaces_its_part(capfd: pytest.CaptureFixture[str]) -> None:
    def run_cell(module: str, name: str = "Mine") -> type:
        cell: dict[str, Any] = {"__name__": module, "METHODS": METHODS}
        exec(f"@METHODS.register('mine')\nclass {name}(METHODS['simgcd']): ...", cell)
        return cell[name]

    run_cell("__main__")
    assert "replaced" not in capfd.readouterr().err
    again = run_cell("__main__")
    assert METHODS["mine"] is again
    assert "the method 'mine' is replaced: __main__.Mine was defined again" in capfd.readouterr().err
    renamed = run_cell("__main__", name="Renamed")
    assert METHODS["mine"] is renamed
    with pytest.raises(ValueError, match="two methods are called 'mine'"):
        run_cell("elsewhere")
    METHODS._entries.pop("mine")
    run_cell("reloaded")
    again = run_cell("reloaded")
    assert METHODS["mine"] is again
    with pytest.raises(ValueError, match="two methods are called 'mine'"):
        run_cell("reloaded", name="Another")


def test_an_edited_file_is_loaded_again(tmp_path: Path) -> None:
    (file := tmp_path / "edited.py").write_text(REGISTERED)
    plugins.load_plugin(file)
    first = METHODS["tilted"]
    plugins.load_plugin(file)
    assert METHODS["tilted"] is first, "it is as it was"
    file.write_text(REGISTERED.replace("-0.5", "-0.75"))
    plugins.load_plugin(file)
    assert METHODS["tilted"].Config().tilt == -0.75  # type: ignore[attr-defined]
    assert METHODS.origin("tilted") == str(file)


def test_a_notebook_trains_with_the_cell_that_was_run_last(tmp_path: Path) -> None:
    """As a user does: one session, in which the same class is defined twice."""
    cell = (
        "from newkinds.methods import METHODS\n"
        "@METHODS.register('mine')\n"
        "class Mine(METHODS['simgcd']):\n"
        "    'Mine.'\n"
        "    def loss(self, step):\n"
        "        terms = super().loss(step)\n"
        "        return {'loss': FACTOR * terms['loss']}\n"
    )
    session = (
        "import json, newkinds\n"
        f"exec({cell.replace('FACTOR', '1.0')!r})\n"
        f"exec({cell.replace('FACTOR', '0.0')!r})\n"
        f"settings = {{'data': {{'categories': 4, 'per_category': 8}}, 'train': {{'batch_size': 16}}}}\n"
        f"newkinds.train('creatures', {str(tmp_path / 'run')!r}, method='mine', epochs=1, settings=settings)\n"
    )
    done = subprocess.run([sys.executable, "-c", session], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "the method 'mine' is replaced: __main__.Mine was defined again" in done.stderr
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text())["loss"] == 0, "the second one was trained"


def test_plugins_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"nowhere\.py does not exist"):
        plugins.load_plugin(tmp_path / "nowhere.py")
    (tmp_path / "json.py").write_text("raise RuntimeError")
    with pytest.raises(NewkindsError, match=r"json\.py has the name of another module .*: rename it"):
        plugins.load_plugin(tmp_path / "json.py")


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("my.plug.py", "", "cannot be imported by that name"),
        ("stops.py", "raise SystemExit(3)", "cannot be loaded: SystemExit: 3 .*line 1"),
    ],
)
def test_plugins_that_cannot_be_loaded(tmp_path: Path, name: str, code: str, message: str) -> None:
    (tmp_path / name).write_text(code)
    with pytest.raises(NewkindsError, match=message):
        plugins.load_plugin(tmp_path / name)

"""`newkinds diagnose`: what is measured in runs of every organizer, what is written, and what is refused."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from scipy.stats import spearmanr

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.errors import NewkindsError
from newkinds.evaluation.diagnose import Diagnosis, diagnosis_figures, result, runs, von_neumann_entropy
from newkinds.evaluation.diagnose.several import spearman
from newkinds.runs.run import Run
from newkinds.training.embedding import details_of

Cli = Callable[..., tuple[int, str, str]]
UNTRAINED = {**TINY_TRAINING, **SMALL_HEAD, "train": {"epochs": 0, "freeze_organizer": True}}
PICTURES = {f"diagnose_{name}.{kind}" for name in ("spectra", "fields", "contribution") for kind in ("png", "svg")}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images as in `trained_run`, without an organizer, and nothing trained."""
    out = tmp_path_factory.mktemp("runs") / "host"
    newkinds.discover("creatures", out, settings=UNTRAINED)
    return out


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_run, tmp_path / "cpf"))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures, which take most of the time, for tests that are not about them."""
    monkeypatch.setattr(runs, "pictures", lambda *_: {})
    monkeypatch.setattr(runs, "entropy_and_accuracy", lambda _: {})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def diagnosed(folder: Path) -> Diagnosis:
    return Diagnosis.of_json(json.loads((folder / "diagnose.json").read_text(encoding="utf-8"))["run"])


def test_a_run_against_its_host(run: Path, host: Path, run_cli: Cli) -> None:
    before, of_host = contents(run), contents(host)
    status, out, err = run_cli("diagnose", run, "--against", host)
    assert status == 0, err
    assert "simgcd with organizer cpf, seed 0, on creatures, tiny; all 32 images" in out
    assert "against: entropy" in out
    assert f"{host}: there is no CPF in this run" in out
    after = contents(run)
    assert set(after) - set(before) == {"diagnose.json", "diagnose.md", *PICTURES}
    assert {name: after[name] for name in before if name != "checksums.txt"} == {
        name: content for name, content in before.items() if name != "checksums.txt"
    }
    assert after["diagnose.md"].decode() in (out, out + "\n")
    assert after["diagnose_spectra.png"].startswith(b"\x89PNG")
    assert b"<svg" in after["diagnose_spectra.svg"]
    assert b"mathdefault" not in after["diagnose_spectra.svg"]  # ticks are numbers, not the source of an equation
    assert {"diagnose.json", "diagnose.md", *PICTURES} <= {file.name for file in Run(run).own_files()}  # have checksums
    assert contents(host) == of_host
    assert set(json.loads(after["diagnose.json"])["about"]) >= {"contribution", "disagreement", "dead"}


@pytest.mark.usefixtures("undrawn")
def test_figures_are_those_of_a_naive_computation(run: Path) -> None:
    newkinds.diagnose_runs(run)
    found = diagnosed(run)
    features = load_file(run / "features.safetensors")["features"]
    loaded = newkinds.load(run)
    table = newkinds.data.load_table(loaded.config.data)
    tokens = [part.tokens for part in details_of(loaded.model.encoder, table, torch.device("cpu"))]
    cls, x = torch.cat([some.cls for some in tokens]), torch.cat([some.patches for some in tokens])
    cpf = loaded.model.encoder.organizer
    assert isinstance(cpf, newkinds.CPF)
    with torch.inference_mode():
        field = cpf(cls, x, return_field=True)
        mixed = field.assignment @ F.gelu(cpf.mlp1(field.primitives))
    entropy = {(entry.matrix.split(":")[0], entry.per): entry.entropy for entry in found.spectra}
    assert entropy["CLS*", "sample"] == pytest.approx(von_neumann_entropy(features), abs=1e-4)
    assert entropy["CLS", "sample"] == pytest.approx(von_neumann_entropy(cls), abs=1e-4)
    assert entropy["X_refined", "sample"] == pytest.approx(von_neumann_entropy(field.tokens.flatten(0, 1)), abs=1e-4)
    of_images = [von_neumann_entropy(image) for image in x]
    assert entropy["X", "image"] == pytest.approx(sum(of_images) / len(of_images), abs=1e-4)
    of_images = [von_neumann_entropy(image) for image in mixed]
    assert entropy["A·MLP₁(P2)", "image"] == pytest.approx(sum(of_images) / len(of_images), abs=1e-3)
    added = (features - cls).double().numpy()
    shared = float(np.square(added.mean(axis=0)).sum() / np.square(added).sum(axis=1).mean())
    assert found.measures["contribution_shared"] == pytest.approx(shared, abs=1e-4)
    size = np.linalg.norm(added, axis=1).mean() / np.linalg.norm(cls.double().numpy(), axis=1).mean()
    assert found.measures["contribution"] == pytest.approx(float(size), rel=1e-4)
    base = cpf.base.detach()
    shift = [float((image - base).norm() / base.norm()) for image in field.codebook]
    assert found.measures["codebook_shift"] == pytest.approx(sum(shift) / len(shift), rel=1e-4)
    message = (field.tokens - x).double()
    assert found.measures["message"] == pytest.approx(float(message.norm() / x.double().norm()), rel=1e-4)
    assert found.measures["gamma"] == pytest.approx(float(cpf.gamma.detach()))
    assert found.measures["mixture_rank"] <= found.measures["primitives"] == 12
    assert set(found.measures) - {"gamma", "alpha_prior", "alpha_data"} <= set(result.ABOUT)  # all is said in words
    evaluated = newkinds.evaluate(run)["metrics"]
    assert found.accuracy == {part: evaluated[f"acc_{part}"] for part in ("all", "old", "new")}


READOUTS = [{"name": "cpf", "readout": readout} for readout in ("delta", "gated")]
WITHOUT_ALPHA = {"name": "cpf", "learn_alpha": False}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "organizer",
    [*({"name": name} for name in ORGANIZERS if name != "cpf"), *READOUTS, WITHOUT_ALPHA],
    ids=lambda organizer: "-".join(str(value) for value in organizer.values()),
)
def test_every_organizer_can_be_diagnosed(organizer: dict[str, object], tmp_path: Path) -> None:
    newkinds.train("creatures", tmp_path / "run", settings={**UNTRAINED, "organizer": organizer})
    found = newkinds.diagnose_runs(tmp_path / "run", sample=12).runs[0]
    assert (found.images, found.of, found.accuracy) == (12, 32, None)  # it was only trained, not assigned
    assert math.isfinite(found.spectrum(result.FEATURE).entropy)
    assert ("disagreement" in found.measures) == (organizer["name"] in ("cpf", "cpf-parts")) == (not found.note)
    gates = [name for name in found.measures if name.startswith("gate")]
    assert bool(gates) == (organizer.get("readout") == "gated")
    assert ("alpha_prior (fixed)" in found.measures) == (organizer in ({"name": "cpf-parts"}, WITHOUT_ALPHA))
    with_slots = ("grid", "cpf-parts", "attention-pooling", "cpf-attention")
    assert ("slots" in found.measures) == (organizer["name"] in with_slots)
    assert (tmp_path / "run" / "diagnose.json").is_file()


def test_a_sample_is_the_same_for_all_runs_and_every_time(host: Path, tmp_path: Path) -> None:
    one = newkinds.diagnose_runs(host, out=tmp_path / "one", sample=7).runs[0]
    newkinds.diagnose_runs(host, out=tmp_path / "two", sample=7)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")  # figures too
    assert not (host / "diagnose.json").exists()
    newkinds.train("creatures", tmp_path / "patches", organizer="patches", settings=UNTRAINED)
    other = newkinds.diagnose_runs(tmp_path / "patches", out=tmp_path / "three", sample=7).runs[0]
    assert (one.images, other.images) == (7, 7)
    assert other.spectrum(result.CLS) == one.spectrum(result.CLS)  # the same frozen backbone saw the same images
    assert other.spectrum(result.FEATURE) != one.spectrum(result.FEATURE)


@pytest.mark.usefixtures("undrawn")
def test_what_is_measured_already_is_not_measured_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = newkinds.diagnose_runs(run).text
    with monkeypatch.context() as patched:
        patched.setattr(runs, "_measure", None)
        assert newkinds.diagnose_runs(run).text == first
    assert newkinds.diagnose_runs(run, sample=5).runs[0].images == 5  # another sample is
    (run / "diagnose.json").write_text("{")
    with pytest.raises(NewkindsError, match=r"diagnose\.json would be replaced, but it is not as newkinds wrote it"):
        newkinds.diagnose_runs(run)
    (run / "diagnose.json").unlink()
    assert newkinds.diagnose_runs(run).text == first


def test_several_runs_end_with_a_table(
    run: Path, host: Path, tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [Path(shutil.copytree(host, tmp_path / f"copy{place}")) for place in range(4)]  # enough for a table
    with monkeypatch.context() as patched:
        patched.setattr(runs, "pictures", lambda *_: {})
        status, out, err = run_cli("diagnose", run, host, *copies, host, "--out", tmp_path / "all", "--sample", 9)
    assert status == 0, err
    assert out.count("simgcd |") == 6  # one line for each run, though the host is named twice
    assert "entropy of CLS*" in out
    assert {file.name for file in (tmp_path / "all").glob("[!.]*") if file.is_file()} == {
        "diagnose_runs.png", "diagnose_runs.svg",
    }  # fmt: skip
    assert len(list((tmp_path / "all").glob("*/diagnose.json"))) == 6
    assert not (host / "diagnose.json").exists()


def test_features_alone_need_no_images_and_change_no_run(
    run: Path, host: Path, tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [Path(shutil.copytree(host, tmp_path / f"copy{place}")) for place in range(4)]
    before = contents(run)
    with monkeypatch.context() as patched:
        patched.setattr(runs, "details_of", None)
        status, out, err = run_cli("diagnose", run, *copies, "--features-only")
        found = newkinds.diagnose_runs(run, features_only=True).runs[0]
    assert status == 0, err
    assert "ρ with All" in out
    features = load_file(run / "features.safetensors")["features"]
    assert found.spectrum(result.FEATURE).entropy == pytest.approx(von_neumann_entropy(features))
    assert found.spectrum(result.CENTRED).entropy == pytest.approx(von_neumann_entropy(features - features.mean(0)))
    assert contents(run) == before


def test_spearman_is_the_correlation_of_ranks() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=30).round(1)  # with ties
    other = 0.5 * one + rng.normal(size=30)
    found = spearman(one, other)
    assert found is not None
    assert (found[0], found[2]) == pytest.approx(tuple(spearmanr(one, other)))
    assert found[1][0] < found[0] < found[1][1]
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40])[0] == 1
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1])[0] == -1
    assert spearman([1, 2, 3], [1, 2, 3]) is None
    assert spearman([1, 1, 1, 1], [1, 2, 3, 4]) is None


def spoil(run: Path, what: str) -> None:
    if what == "unfinished":
        (run / "model.safetensors").unlink()
    elif what == "damaged model":
        (run / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:-100])
    elif what == "damaged settings":
        (run / "config.yaml").write_text("organizer: [")
    elif what == "no settings":
        (run / "config.yaml").unlink()
    elif what == "no protocol":
        (run / "protocol.json").unlink()
    elif what == "gone":
        shutil.rmtree(run)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("unfinished", "is not finished.*rerun its command"),
        ("damaged model", "model.safetensors is damaged"),
        ("damaged settings", "config.yaml is damaged"),
        ("no settings", "is not a run directory"),
        ("no protocol", "protocol.json is missing"),
        ("gone", "there is no folder"),
    ],
)
def test_what_is_no_finished_run_is_refused(what: str, said: str, run: Path, run_cli: Cli) -> None:
    spoil(run, what)
    before = contents(run)
    status, out, err = run_cli("diagnose", run)
    assert (status, out) == (1, "")
    with pytest.raises(NewkindsError, match=said):
        newkinds.diagnose_runs(run)
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1
    assert contents(run) == before


@pytest.mark.usefixtures("undrawn")
def test_other_refusals(run: Path, host: Path, tmp_path: Path) -> None:
    newkinds.train(
        "creatures", tmp_path / "others", settings={**UNTRAINED, "data": {"categories": 4, "per_category": 9}}
    )
    before = contents(run)
    with pytest.raises(NewkindsError, match="not a run of the same images"):
        newkinds.diagnose_runs(run, against=tmp_path / "others")
    with pytest.raises(NewkindsError, match="at least 2"):
        newkinds.diagnose_runs(run, sample=1)
    with pytest.raises(NewkindsError, match="is a run of its own"):
        newkinds.diagnose_runs(run, out=host)
    with pytest.raises(NewkindsError, match="no run is named"):
        newkinds.diagnose_runs([])
    assert contents(run) == before


def test_a_failure_leaves_nothing_behind(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(run)
    monkeypatch.setattr(diagnosis_figures, "_contribution", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        newkinds.diagnose_runs(run)
    assert contents(run) == before

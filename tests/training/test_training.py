"""The loop: what is trained, with which rates, and that a killed run loses nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.optim import SGD

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING, Killed, save_image
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.backbones import weights_file
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import Progress, Step
from newkinds.methods.schedules import cosine_lr
from newkinds.runs.config import TrainConfig, resolve
from newkinds.runs.run import Run
from newkinds.training.model import Model, build_model, load_model
from newkinds.training.optimizers import Optimizers, build_optimizer, describe_groups, parameter_groups
from newkinds.training.steps import step


def small_model(organizer: str = "cpf", **train: object) -> Model:
    config = resolve({"data": {"name": "creatures"}, "organizer": {"name": organizer}, "train": train})
    return build_model(config, ["a", "b"], 4)


def some_batch(labels: list[int]) -> Batch:
    generator = torch.Generator().manual_seed(0)
    views = torch.randint(256, (2 * len(labels), 3, 64, 64), dtype=torch.uint8, generator=generator)
    return Batch(Pixels(views), torch.tensor(labels), torch.arange(len(labels)))


def test_parameter_groups_follow_the_hosts_rule() -> None:
    model = small_model()
    groups = parameter_groups(model, TrainConfig(weight_decay=1e-4, organizer_lr_ratio=0.5, backbone_lr_ratio=0.25))
    by_id = {id(p): (g["weight_decay"], g["lr_ratio"]) for g in groups for p in g["params"]}
    trainable = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert len(by_id) == len(trainable)
    for name, parameter in trainable:
        decay, ratio = by_id[id(parameter)]
        assert decay == (0.0 if name.endswith(".bias") or parameter.ndim == 1 else 1e-4), name
        assert ratio == (0.5 if "organizer" in name else 0.25 if "backbone" in name else 1.0), name
    everything = parameter_groups(model, TrainConfig(decay_biases=True))
    undecayed = {id(p) for g in everything if g["weight_decay"] == 0 for p in g["params"]}
    gates = {id(p) for p in model.encoder.organizer.parameters() if p.ndim == 1}
    assert undecayed == gates  # an organizer's scalars are never decayed


def test_only_the_last_block_organizer_and_head_are_trained() -> None:
    trained = {n for n, p in small_model().named_parameters() if p.requires_grad}
    backbone = {n for n in trained if ".backbone." in n}
    assert backbone
    assert all("blocks.3." in name for name in backbone)  # tiny has blocks 0 to 3
    assert any(n.startswith("encoder.organizer.") for n in trained)
    assert any(n.startswith("method.") for n in trained)


def test_an_organizer_that_would_learn_nothing_is_refused(tmp_path: Path) -> None:
    model = small_model()
    assert any("organizer" in group["name"] for group in parameter_groups(model, TrainConfig()))
    model.encoder.organizer.requires_grad_(False)
    with pytest.raises(NewkindsError, match="freeze_organizer"):
        parameter_groups(model, TrainConfig())
    as_control = parameter_groups(model, TrainConfig(freeze_organizer=True))
    for groups in (as_control, parameter_groups(small_model("none"), TrainConfig())):
        assert not any("organizer" in group["name"] for group in groups)


def test_every_group_of_parameters_is_said_with_its_rate_decay_and_size(trained_run: Path) -> None:
    model = small_model()
    config = TrainConfig(lr=0.1, backbone_lr_ratio=0.01, weight_decay=1e-4)
    lines = describe_groups(parameter_groups(model, config), config.lr)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert sum(int(line.split(": ")[1].split()[0].replace(",", "")) for line in lines) == trained
    matrices = sum(p.numel() for p in model.encoder.backbone.parameters() if p.requires_grad and p.ndim > 1)
    assert f"backbone: {matrices:,} parameters, lr 0.001, decay 0.0001" in lines
    assert sum("organizer" in line for line in lines) == sum("head" in line for line in lines) == 2
    recorded = json.loads((trained_run / "protocol.json").read_text())["trains"]
    assert [line.split(":")[0] for line in recorded] == [line.split(":")[0] for line in lines]


def test_a_frozen_organizer_stays_at_its_start(tmp_path: Path) -> None:
    settings = [TINY_TRAINING, SMALL_HEAD, {"train": {"freeze_organizer": True}}]
    loaded = newkinds.train("creatures", tmp_path / "run", organizer="cpf", settings=settings)
    start = build_model(loaded.config, loaded.model.known, loaded.model.k)
    for (name, before), after in zip(
        start.encoder.organizer.named_parameters(), loaded.model.encoder.organizer.parameters(), strict=True
    ):
        assert torch.equal(before, after), name


def test_hosts_with_and_without_organizer_start_from_the_same_head() -> None:
    heads = [small_model(name).method.state_dict() for name in ("none", "cpf")]
    assert all(torch.equal(heads[0][key], heads[1][key]) for key in heads[0])


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [-1, -1, -1, -1], [0, 0, 1, 1], [0, -1, -1, -1]])
def test_a_step_with_any_mix_of_labels_is_finite_and_learns(labels: list[int]) -> None:
    model = small_model()
    optimizer = build_optimizer(parameter_groups(model, TrainConfig()), TrainConfig(lr=0.01))
    before = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    losses = step(model, some_batch(labels), Progress(0, 10), optimizer)
    assert all(torch.isfinite(value) for value in losses.values())
    assert all(torch.isfinite(p).all() for p in model.parameters())
    changed = {n for n, p in model.named_parameters() if n in before and not torch.equal(p, before[n])}
    assert any(n.startswith("encoder.organizer.") for n in changed)


def test_auxiliary_losses_of_an_organizer_are_added() -> None:
    model = small_model("none")
    organize = model.encoder.organizer.organize
    weight = torch.nn.Parameter(torch.tensor(2.0))

    def with_loss(tokens: object, details: bool = False) -> Encoded:
        return Encoded(organize(tokens, details).feature, losses={"tidiness": 3 * weight})  # type: ignore[arg-type]

    model.encoder.organizer.organize = with_loss  # type: ignore[assignment,method-assign]
    optimizer = Optimizers([SGD([weight], lr=0.0)])
    batch = some_batch([0, -1])
    losses = step(model, batch, Progress(0, 10), optimizer)
    assert losses["organizer/tidiness"] == 6
    assert weight.grad == 3
    terms = model.method.loss(Step(batch, model.encoder(batch.inputs), Progress(0, 10)))
    torch.testing.assert_close(losses["loss"], terms["loss"] + 6)


def test_metrics_hold_a_row_an_epoch_with_the_cosine_rate(trained_run: Path) -> None:
    rows = [json.loads(line) for line in (trained_run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1]
    assert [row["lr"] for row in rows] == [cosine_lr(e, 2, 0.1) for e in (0, 1)]
    assert {"loss", "seconds", "info_nce"} <= rows[0].keys()


def test_bfloat16_trains(tmp_path: Path) -> None:
    settings = [TINY_TRAINING, SMALL_HEAD, {"train": {"precision": "bfloat16", "epochs": 1}}]
    newkinds.train("creatures", tmp_path / "run", organizer="cpf", settings=settings)
    assert Run(tmp_path / "run").metrics()[0]["loss"] < 100


def test_evaluation_during_training_is_written_but_chooses_nothing(tmp_path: Path) -> None:
    settings = [TINY_TRAINING, SMALL_HEAD, {"train": {"eval_every": 1}}]
    watched = newkinds.train("creatures", tmp_path / "a", settings=settings)
    plain = newkinds.train("creatures", tmp_path / "b", settings=[TINY_TRAINING, SMALL_HEAD])
    assert all(0 <= row["acc_new"] <= 1 for row in Run(tmp_path / "a").metrics())
    for (name, a), b in zip(watched.model.state_dict().items(), plain.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("epochs", [1, 2])
def test_divergence_is_an_error_and_no_model_is_saved(photos: Path, tmp_path: Path, epochs: int) -> None:
    settings = {"train": {"lr": 1e30, "epochs": epochs}}
    with pytest.raises(NewkindsError, match=r"lower the learning rate \(train.lr is 1e\+30\)"):
        newkinds.train(photos, tmp_path / "run", k=3, settings=settings)
    assert not (tmp_path / "run" / "model.safetensors").exists()


# -- interruption ------------------------------------------------------------------------------------------

EPOCHS = 5
COMMAND = (
    "train creatures --organizer cpf --device cpu --set data.categories=4 --set data.per_category=16 "
    f"--set train.batch_size=16 --set train.epochs={EPOCHS}"
).split()


def start(out: Path, log: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as file:
        return subprocess.Popen([sys.executable, "-m", "newkinds", *COMMAND, "--out", str(out)], stderr=file)


def epochs_written(out: Path) -> int:
    file = out / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.skipif(os.environ.get("NEWKINDS_FAULTS") != "long", reason="takes long: NEWKINDS_FAULTS=long")
def test_killed_at_any_moment_the_same_command_ends_with_the_same_model(tmp_path: Path) -> None:
    whole, out, log = tmp_path / "whole", tmp_path / "killed", tmp_path / "log"
    assert start(whole, log).wait(timeout=300) == 0
    kept: list[dict[str, object]] = []  # rows of epochs that were complete when the process was killed
    for epochs_to_wait_for in (0, 1, 3):  # before the first checkpoint, after it, and later
        process = start(out, log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if (out / "config.yaml").exists() and epochs_written(out) >= epochs_to_wait_for:
                break
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        state = Run(out).load_state()
        kept = Run(out).metrics()[: state["epochs_done"]] if state else []
    assert len(kept) >= 2
    assert start(out, log).wait(timeout=300) == 0
    assert f"resuming after epoch {len(kept)}" in log.read_text()  # it did not begin anew ...
    assert Run(out).metrics()[: len(kept)] == kept  # ... and the rows before are the very same, seconds and all
    assert digest(out / "model.safetensors") == digest(whole / "model.safetensors")
    rows = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in Run(folder).metrics()] for folder in (whole, out)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == EPOCHS


@pytest.mark.parametrize("writes", range(1, 15))
def test_killed_between_any_two_writes_nothing_is_lost(
    writes: int, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies right after its n-th file was written; the same call then ends as if nothing had happened."""
    out, settings = tmp_path / "run", {"train": {"epochs": 2}, **SMALL_HEAD}
    done = 0
    replace_file = os.replace

    def replace_then_die(*names: object) -> None:
        nonlocal done
        replace_file(*names)  # type: ignore[arg-type]
        done += 1
        if done == writes:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace_then_die)
        with pytest.raises(Killed):
            newkinds.discover(photos, out, k=3, settings=settings)
    found = newkinds.discover(photos, out, k=3, settings=settings)
    assert len(found.members) == 21
    assert len(Run(out).metrics()) == 2
    assert {"README.md", "report.html", "assignments.csv", "categories.json"} <= {p.name for p in out.iterdir()}
    assert not list(out.glob(".*.tmp"))


def test_a_run_with_other_settings_is_not_continued(trained_run: Path) -> None:
    with pytest.raises(NewkindsError, match=r"train.epochs is 2 there and 3 here"):
        newkinds.train(
            "creatures", trained_run, organizer="cpf", settings=[TINY_TRAINING, SMALL_HEAD, {"train": {"epochs": 3}}]
        )


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NewkindsError, match="not empty and holds no run"):
        newkinds.train("creatures", tmp_path, settings=TINY_TRAINING)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_changed_images_are_not_mixed_into_an_old_run(photos: Path, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", {"train": {"epochs": 1}, **SMALL_HEAD}
    newkinds.train(photos, out, k=3, settings=settings)
    (out / "model.safetensors").unlink()
    (photos / "loose.png").unlink()
    with pytest.raises(NewkindsError, match=r"1 image was removed \(loose\.png\)"):
        newkinds.train(photos, out, k=3, settings=settings)


def test_a_finished_run_is_not_used_for_other_images(photos: Path, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", {"train": {"epochs": 1}, **SMALL_HEAD}
    newkinds.train(photos, out, k=3, settings=settings)
    save_image(photos / "azure" / "a.png")
    with pytest.raises(NewkindsError, match=r"1 image was added \(azure/a\.png\)"):
        newkinds.discover(photos, out, k=3, settings=settings)


def test_another_weight_file_is_not_mixed_into_an_old_run(photos: Path, tmp_path: Path) -> None:
    weights, out, settings = tmp_path / "w.safetensors", tmp_path / "run", {"train": {"epochs": 1}}
    bundled = weights_file("tiny").read_bytes()
    weights.write_bytes(bundled)
    newkinds.train(photos, out, k=3, backbone="tiny", weights=weights, settings=settings)
    (out / "model.safetensors").unlink()
    state = load_file(weights)
    save_file({**state, "cls_token": state["cls_token"] + 1}, weights)
    with pytest.raises(NewkindsError, match="weight file changed"):
        newkinds.train(photos, out, k=3, backbone="tiny", weights=weights, settings=settings)


def other_checkpoints() -> dict[str, object]:
    other = small_model("none").state_dict()
    shapes = {name: torch.zeros(2, 2) for name in other if name.startswith("method")}
    rest = {"optimizer": {"state": {}, "param_groups": []}, "scaler": {}, "epochs_done": 1}
    return {
        "another file": {"weights": torch.zeros(3)},
        "another organizer": {"model": small_model("cpf").state_dict(), **rest},
        "other shapes": {"model": shapes, **rest},
        "too little": {"model": {}, **rest},
    }


@pytest.mark.parametrize("kind", ["another file", "another organizer", "other shapes", "too little"])
def test_a_checkpoint_of_another_model_is_refused(photos: Path, tmp_path: Path, kind: str) -> None:
    out, settings = tmp_path / "run", {"train": {"epochs": 1}, **SMALL_HEAD}
    newkinds.train(photos, out, k=3, settings=settings)
    (out / "model.safetensors").unlink()
    Run(out).save_state(other_checkpoints()[kind])  # type: ignore[arg-type]
    with pytest.raises(NewkindsError, match=r"train_state\.pt is not a checkpoint of this model"):
        newkinds.train(photos, out, k=3, settings=settings)


def test_a_damaged_checkpoint_is_named(photos: Path, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", {"train": {"epochs": 1}, **SMALL_HEAD}
    newkinds.train(photos, out, k=3, settings=settings)
    (out / "model.safetensors").unlink()
    (out / "train_state.pt").write_bytes(b"half of it")
    with pytest.raises(NewkindsError, match=r"train_state\.pt is damaged"):
        newkinds.train(photos, out, k=3, settings=settings)


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    newkinds.train("creatures", tmp_path / "run", settings=[TINY_TRAINING, {"train": {"epochs": 1}}])
    half_written = tmp_path / "run" / ".train_state.pt.0123.tmp"
    half_written.write_text("by the other process")
    with Run(tmp_path / "run").claimed(), pytest.raises(NewkindsError, match="another process is training"):
        newkinds.train("creatures", tmp_path / "run", settings=[TINY_TRAINING, {"train": {"epochs": 1}}])
    assert half_written.exists()
    newkinds.train("creatures", tmp_path / "run", settings=[TINY_TRAINING, {"train": {"epochs": 1}}])


def test_evaluation_on_the_way_without_truth_is_left_out(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"train": {"epochs": 1, "batch_size": 8, "eval_every": 1, "cache_views": 2}, **SMALL_HEAD}
    newkinds.train(photos, tmp_path / "run", k=3, settings=settings)
    assert "true classes, which are not known here" in capfd.readouterr().err
    assert "acc_all" not in Run(tmp_path / "run").metrics()[0]


def test_weights_that_share_memory_are_saved_and_come_back(tmp_path: Path) -> None:
    config = resolve({"data": {"name": "creatures"}, "organizer": {"name": "cpf"}})
    model = build_model(config, ["a", "b"], 4)
    organizer = model.encoder.organizer
    organizer.update.k.weight = organizer.update.q.weight  # type: ignore[union-attr]
    (tmp_path / "model.safetensors").write_bytes(model.as_safetensors())
    loaded = load_model(config, tmp_path / "model.safetensors", torch.device("cpu"))
    assert torch.equal(loaded.encoder.organizer.update.k.weight, organizer.update.q.weight)  # type: ignore[union-attr]


def test_loading_a_run_leaves_random_numbers_and_memory_settings_alone(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("newkinds.process.keep_freed_memory", lambda: pytest.fail("this is for the command alone"))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    newkinds.load(trained_run)
    assert torch.equal(torch.rand(3), expected)

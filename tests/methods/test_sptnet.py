"""SPTNet: its prompts against the numbers of the published code (float64) and plain loops, its turns, its settings."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.encoders.tunings import TUNINGS, Anatomy
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.simgcd import SimGCD
from newkinds.runs.config import resolve

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "sptnet.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}
SPTNet = METHODS["sptnet"]
CASE = Anatomy("case", dim=8, size=16, blocks=2, prefix=1, patch=8)
FRAME = 42  # of an image of 224, so 3 px of one of 16
SIDES = {  # where the published code keeps the parts of its frame
    "pad_up": (slice(0, 3), slice(0, 16)),
    "pad_down": (slice(13, 16), slice(0, 16)),
    "pad_left": (slice(3, 13), slice(0, 3)),
    "pad_right": (slice(3, 13), slice(13, 16)),
}


def prompts(anatomy=CASE, **settings):
    return TUNINGS["pixels"](anatomy, **settings).double()


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "sptnet.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


def put_frame(tuning, arrays):
    for name, (rows, columns) in SIDES.items():
        tuning.frame.data[:, rows, columns] = arrays[f"parameter_pad/{name}"][0]


# --- published numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "shared"), [("patch", False), ("shared", True)])
def test_prompts_inside_patches_are_the_published_ones(arrays, kind, shared):
    tuning = prompts(where="patches", shared=shared)
    tuning.patches.data.copy_(arrays[f"parameter_{kind}/patch"][0])
    out = tuning.images(arrays["x"])
    torch.testing.assert_close(out, arrays[f"out_{kind}"], **TIGHT)
    (out * arrays["weight_for_grad"]).sum().backward()
    torch.testing.assert_close(tuning.patches.grad, arrays[f"grad_{kind}/patch"][0], **TIGHT)


def test_the_frame_is_the_published_one(arrays):
    tuning = prompts(where="frame", frame=FRAME)
    put_frame(tuning, arrays)
    out = tuning.images(arrays["x"])
    torch.testing.assert_close(out, arrays["out_pad"], **TIGHT)
    (out * arrays["weight_for_grad"]).sum().backward()
    for name, (rows, columns) in SIDES.items():
        torch.testing.assert_close(tuning.frame.grad[:, rows, columns], arrays[f"grad_pad/{name}"][0], **TIGHT)
    assert not tuning.frame.grad[:, 3:13, 3:13].any()


def test_both_together_are_the_published_ones(arrays):
    tuning = prompts(frame=FRAME)
    tuning.patches.data.copy_(arrays["parameter_patch/patch"][0])
    put_frame(tuning, arrays)
    out = tuning.images(arrays["x"])
    torch.testing.assert_close(out, arrays["out_all"], **TIGHT)
    (out * arrays["weight_for_grad"]).sum().backward()
    torch.testing.assert_close(tuning.patches.grad, arrays["grad_patch/patch"][0], **TIGHT)
    torch.testing.assert_close(tuning.frame.grad[:, :3], arrays["grad_pad/pad_up"][0], **TIGHT)


def runs_of(turns):
    """[["P", 19], …]: who trains for how many steps in a row, P the prompts and M the model."""
    letters = ["P" if turn == "tuning" else "M" for turn in turns]
    starts = [i for i, letter in enumerate(letters) if i == 0 or letters[i - 1] != letter]
    lengths = np.diff([*starts, len(letters)]).tolist()
    return [[letters[start], length] for start, length in zip(starts, lengths, strict=True)]


@pytest.mark.parametrize("steps", [46, 100])
@pytest.mark.parametrize("epoch", [0, 3])
def test_turns_as_published_begin_anew_with_each_epoch(steps, epoch):
    tuning = prompts(as_published=True)
    turns = [tuning.turn(epoch * steps + step, step) for step in range(steps)]
    assert runs_of(turns) == EXPECTED[f"runs_{steps}_batches"]


@pytest.mark.parametrize("steps", [1, 7, 46, 100])
def test_turns_are_of_twenty_steps_each_over_all_epochs(steps):
    turns = [prompts().turn(taken, taken % steps) for taken in range(200)]
    assert runs_of(turns) == [["P", 20], ["M", 20]] * 5


# --- the same by plain loops -----------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("where", "ring", "frame"), [("both", 1, 30), ("patches", 2, 30), ("frame", 1, 100)])
def test_prompts_by_loops(where, ring, frame, shared):
    size, patch = 24, 6
    tuning = prompts(Anatomy("case", 8, size, patch=patch), where=where, ring=ring, frame=frame, shared=shared)
    generator = torch.Generator().manual_seed(0)
    for parameter in tuning.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    width = {30: 3, 100: 11}[frame]  # of 24 px: a share of 24 / 224, rounded
    expected = torch.zeros(3, size, size, dtype=torch.float64)
    for row in range(size):
        for column in range(size):
            inner = (row % patch, column % patch)
            if where != "frame" and any(place < ring or place >= patch - ring for place in inner):
                expected[:, row, column] += tuning.patches[(slice(None), *(inner if shared else (row, column)))]
            if where != "patches" and any(place < width or place >= size - width for place in (row, column)):
                expected[:, row, column] += tuning.frame[:, row, column]
    torch.testing.assert_close(tuning.prompt(), expected, **TIGHT)


def test_while_the_model_trains_both_views_are_one_crop_without_and_with_prompts():
    tuning, images = prompts(), torch.randn(6, 3, 16, 16, dtype=torch.float64)
    tuning.patches.data.fill_(0.5)
    crops, prompted = images[:3], images + tuning.prompt().detach()
    for now in ("all", "tuning"):
        tuning.now = now
        assert torch.equal(tuning.images(images), prompted)
        assert tuning.images(images).requires_grad
    tuning.now = "rest"
    assert torch.equal(tuning.images(images), torch.cat([crops, prompted[:3]]))
    assert not tuning.images(images).requires_grad


# --- the loss and the settings ---------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [-1, -1], [1]])
def test_the_loss_is_simgcds_whatever_the_labels(labels):
    losses = []
    for method in (SPTNet, SimGCD):
        torch.manual_seed(0)
        config = method.Config(projection_hidden=16, projection_dim=8, warmup_teacher_epochs=10)
        built = method(config, dim=12, known=2, categories=5)
        features = torch.randn(2 * len(labels), 12, generator=torch.Generator().manual_seed(1), requires_grad=True)
        batch = Batch(Pixels(torch.empty(0)), torch.tensor(labels), torch.arange(len(labels)))
        terms = built.loss(Step(batch, Encoded(features), Progress(5, epochs=1000)))
        terms["loss"].backward()
        assert features.grad.isfinite().all()
        losses.append({name: value.item() for name, value in terms.items()})
    assert losses[0] == losses[1]
    assert all(map(math.isfinite, losses[0].values()))


def test_defaults_are_the_published_ones_except_the_rate_of_prompts():
    config = resolve({"data": {"name": "creatures"}, "method": {"name": "sptnet"}})
    assert config.tuning == {
        "name": "pixels", "where": "both", "ring": 1, "frame": 30, "shared": False, "alternate": 20,
        "as_published": False,
    }  # fmt: skip
    train = config.train
    assert (train.epochs, train.lr, train.min_lr_ratio, train.weight_decay) == (1000, 0.05, 0.1, 5e-4)
    assert (train.tuning_lr_ratio, train.tuning_decay) == (1, 0)
    assert config.method["warmup_teacher_epochs"] == 10
    assert (SPTNet.starts_from, SimGCD.starts_from) == ("simgcd", None)

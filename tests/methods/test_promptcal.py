"""PromptCAL's two stages against the numbers of the published code (float64) and against plain loops."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import newkinds
from conftest import TINY_TRAINING
from newkinds import losses
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.promptcal import affinity_contrast, apply_labels, draw_negatives
from newkinds.runs.config import resolve

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "promptcal.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}
QUANTILES = pytest.mark.parametrize("quantile", [0.5, 0.8])
PromptCAL, Stage1 = METHODS["promptcal"], METHODS["promptcal-stage1"]


def method(kind=PromptCAL, dim=8, known=2, categories=5, **settings):
    torch.manual_seed(0)
    small = {"projection_hidden": 16, "projection_dim": 8, "output_dim": 24}
    if kind is PromptCAL:
        small["bank"] = 24
    return kind(kind.Config(**{**small, **settings}), dim, known, categories)


def encoded(images, dim=8, seed=0, prompts=5):
    generator = torch.Generator().manual_seed(seed)
    feature = torch.randn(2 * images, dim, generator=generator, requires_grad=True)
    return Encoded(feature, prompts=torch.randn(2 * images, prompts, dim, generator=generator, requires_grad=True))


def step(labels, seen, taught=None):
    batch = Batch(Pixels(torch.empty(0)), torch.tensor(labels), torch.arange(len(labels)))
    return Step(batch, seen, Progress(5, 100), taught)


def taught_by(promptcal, seen):
    with torch.no_grad():
        return promptcal.teach(seen)


def random_mask(shape, share, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "promptcal.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


@pytest.fixture
def case(arrays):
    """The published batch, its labels (-1: none), and a way to build the method with the published bank."""
    found = {name.split("/")[1]: value for name, value in arrays.items() if name.startswith("affinity/")}
    found["labels"] = torch.where(found["mask_lab"] == 1, found["class_labels"], -1)
    bank_labels = torch.where(found["bank_lmask"] == 1, found["bank_labels"], -1)

    def build(**settings):
        promptcal = method(neighbours=4, **settings).double()
        promptcal.bank.push(torch.cat([found["bank"]] * 2, dim=1), bank_labels)
        return promptcal

    return found, build


# --- published numbers -----------------------------------------------------------------------------------


@QUANTILES
def test_positives_and_negatives_are_the_published_ones(case, quantile):
    found, build = case
    promptcal, expected = build(quantile=quantile), EXPECTED["affinity_and_cal"][f"q{quantile}"]
    pseudo = promptcal.find_links(found["teacher"].roll(6, dims=0), found["bank"])
    assert torch.equal(pseudo, found[f"mask_pseudo_q{quantile}"].bool())
    assert int(pseudo.sum()) == expected["n_pos_before_labels"]
    first_columns = torch.arange(24.0).expand(12, -1)
    for pairs, name in ((24, ""), (14, "14")):
        negative = draw_negatives(pseudo, pairs, first_columns)
        positive, negative = apply_labels(pseudo, negative, found["labels"].repeat(2), promptcal.bank.labels)
        assert torch.equal(positive, found[f"mask_pos{name}_q{quantile}"].bool())
        assert torch.equal(negative, found[f"mask_neg{name}_q{quantile}"].bool())
        assert int(positive.sum()) == expected["n_pos_after_labels"]


@QUANTILES
@pytest.mark.parametrize("same_view", [True, False])
def test_affinity_published(case, quantile, same_view):
    found, build = case
    raw, which = found["student_raw"].clone().requires_grad_(), f"{'same' if same_view else 'other'}_view_teacher"
    promptcal = build(quantile=quantile)
    loss = promptcal.affinity(F.normalize(raw, dim=1), found["teacher"], found["labels"], found["bank"], same_view)
    assert loss.item() == pytest.approx(EXPECTED["affinity_and_cal"][f"q{quantile}"]["cal_loss"][which], abs=1e-9)
    torch.testing.assert_close(torch.autograd.grad(loss, raw)[0], found[f"grad_cal_q{quantile}_{which}"], **TIGHT)


@QUANTILES
def test_affinity_with_a_budget_of_pairs_published(case, quantile):
    found, _ = case
    raw = found["student_raw"].clone().requires_grad_()
    masks = [found[f"mask_{kind}14_q{quantile}"].bool() for kind in ("pos", "neg")]
    loss = affinity_contrast(F.normalize(raw, dim=1), found["teacher"], found["bank"], *masks)
    expected = EXPECTED["affinity_and_cal"][f"q{quantile}"]["cal_loss_14pairs_first_negatives"]
    assert loss.item() == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(torch.autograd.grad(loss, raw)[0], found[f"grad_cal14_q{quantile}"], **TIGHT)


def test_the_loss_of_a_branch_published(arrays):
    found = {name.split("/")[1]: value for name, value in arrays.items() if name.startswith("semisup/")}
    raw, expected = found["student_raw"].clone().requires_grad_(), EXPECTED["semi_sup"]
    labels = torch.where(found["mask_lab"] == 1, found["class_labels"], -1)
    affinity = torch.tensor(EXPECTED["affinity_and_cal"]["q0.8"]["cal_loss"]["same_view_teacher"], dtype=torch.float64)
    student, teacher = F.normalize(raw, dim=1), F.normalize(found["teacher_raw"], dim=1)
    terms = method().taught_loss(student, teacher, labels, affinity, 0.3)
    assert terms["supervised_contrastive"].item() == pytest.approx(expected["sup"], abs=1e-9)
    assert terms["info_nce"].item() == pytest.approx(expected["unsup"], abs=1e-9)
    assert terms["loss"].item() == pytest.approx(expected["branch_total_w0.3_with_cal_q0.8_same_view"], abs=1e-9)
    gradient = torch.autograd.grad(terms["loss"], raw)[0]
    torch.testing.assert_close(gradient, found["grad_branch_total_wrt_student_raw"], **TIGHT)


def test_the_share_of_affinity_grows_as_published():
    promptcal = method()
    for taken, expected in EXPECTED["semi_sup"]["share_after_steps_of_100"].items():
        epoch, of_epoch = divmod(int(taken), 50)
        assert promptcal.share(Progress(epoch, 70, of_epoch, 50)) == pytest.approx(expected, abs=1e-12)
    assert method(affinity_warmup_epochs=0).share(Progress(0, 70, 1, 50)) == 0.6


# --- the same formulas, one term at a time ---------------------------------------------------------------


def test_affinity_contrast_by_loops():
    rows, taught, bank = (F.normalize(torch.randn(n, 4, dtype=torch.float64), dim=1) for n in (6, 6, 9))
    positive, negative = random_mask((6, 9), 0.3, seed=1), random_mask((6, 9), 0.6, seed=2)
    total = 0.0
    for i in range(6):
        logits = [float(rows[i] @ row) / 0.2 for row in bank]
        found = [float(rows[i] @ taught[i]) / 0.2] + [logits[j] for j in range(9) if positive[i, j]]
        others = [logits[j] for j in range(9) if negative[i, j] and not positive[i, j]]
        everything = math.log(sum(map(math.exp, found + others)))
        total += sum(everything - value for value in found) / len(found) / 6
    loss = affinity_contrast(rows, taught, bank, positive, negative, 0.2)
    assert loss.item() == pytest.approx(total, abs=1e-10)


def test_negatives_are_drawn_by_their_keys():
    pseudo, keys = random_mask((5, 12), 0.4, seed=3), torch.rand(5, 12)
    for pairs in (1, 4, 9, 50):
        chosen = draw_negatives(pseudo, pairs, keys)
        for i in range(5):
            left = [j for j in range(12) if not pseudo[i, j]]
            budget = max(pairs - int(pseudo[i].sum()), 0)
            order = sorted(left, key=lambda j: keys[i, j])
            assert chosen[i].nonzero().flatten().tolist() == sorted(order[:budget])
            sliced = order[: pairs - int(pseudo[i].sum())]  # published: a negative end counts from the end
            assert draw_negatives(pseudo, pairs, keys, published=True)[i].nonzero().flatten().tolist() == sorted(sliced)


def test_labels_have_the_last_word():
    labels, bank_labels = torch.tensor([0, 1, -1]), torch.tensor([0, 1, -1, 0])
    pseudo, negative = random_mask((3, 4), 0.5, seed=4), random_mask((3, 4), 0.5, seed=5)
    positives, negatives = apply_labels(pseudo, negative & ~pseudo, labels, bank_labels)
    for i, mine in enumerate(labels.tolist()):
        for j, other in enumerate(bank_labels.tolist()):
            if -1 in (mine, other):
                expected = (pseudo[i, j], negative[i, j] and not pseudo[i, j])
            elif mine == other:
                expected = (True, False)
            else:
                expected = (False, pseudo[i, j] or negative[i, j])
            assert (bool(positives[i, j]), bool(negatives[i, j])) == tuple(map(bool, expected))


def test_contrast_against_a_teacher_by_loops():
    student, teacher = (F.normalize(torch.randn(8, 5, dtype=torch.float64), dim=1) for _ in range(2))
    classes = torch.tensor([0, 1, 0, -1]).repeat(2)
    nce, supervised, counted = 0.0, 0.0, 0
    for i in range(8):
        places = [j for j in range(8) if j != i]
        log_sum = math.log(sum(math.exp(float(student[i] @ teacher[j]) / 0.5) for j in places))
        nce += (log_sum - float(student[i] @ teacher[(i + 4) % 8]) / 0.5) / 8
        if classes[i] >= 0:
            labelled = [j for j in places if classes[j] >= 0]
            log_sum = math.log(sum(math.exp(float(student[i] @ teacher[j]) / 0.5) for j in labelled))
            positives = [j for j in labelled if classes[j] == classes[i]]
            supervised += sum(log_sum - float(student[i] @ teacher[j]) / 0.5 for j in positives) / len(positives)
            counted += 1
    assert losses.info_nce(3 * student, 0.5, 2 * teacher).item() == pytest.approx(nce, abs=1e-10)
    found = losses.supervised_contrastive(student, classes, 0.5, teacher)
    assert found.item() == pytest.approx(supervised / counted, abs=1e-10)


def test_the_first_stage_is_gcd_on_the_image_and_on_its_first_prompts():
    stage, gcd = method(Stage1, prompt_weight=0.7, supervised_prompts=3), METHODS["gcd"]
    seen, labels = encoded(4), torch.tensor([0, -1, 1, 0])
    terms = stage.loss(step(labels.tolist(), seen))
    image = gcd.loss_of(stage, stage.head(seen.feature), labels)
    mean = (seen.prompts[:, 0] + seen.prompts[:, 1] + seen.prompts[:, 2]) / 3
    prompts = gcd.loss_of(stage, stage.prompt_head(mean), labels)
    torch.testing.assert_close(terms["loss"], image["loss"] + 0.7 * prompts["loss"])
    torch.testing.assert_close(terms["prompt_info_nce"], prompts["info_nce"])
    assert torch.equal(stage.embedding(seen.feature), F.normalize(seen.feature, dim=1))  # prompts are not clustered


def test_a_step_of_the_second_stage_by_its_parts():
    promptcal, labels = method(neighbours=3, quantile=0.3, pairs=9), torch.tensor([0, -1, 1, 0])
    promptcal.loss(step(labels.tolist(), encoded(4), taught_by(promptcal, encoded(4, seed=1))))
    bank, bank_labels = promptcal.bank.rows.clone(), promptcal.bank.labels.clone()
    assert torch.equal(bank_labels, labels.repeat(2))
    seen, taught = encoded(4, seed=2), taught_by(promptcal, encoded(4, seed=3))
    torch.manual_seed(7)
    terms = promptcal.eval().loss(step([0, 1, -1, -1], seen, taught))
    torch.manual_seed(7)
    total = 0.0
    inputs = ((seen.feature, promptcal.head, ""), (seen.prompts[:, :2].mean(dim=1), promptcal.prompt_head, "prompt_"))
    for branch, (rows, head, name) in enumerate(inputs):
        kept, other = bank[:, 8 * branch :][:, :8], taught[branch][0].roll(4, dims=0)
        pseudo = promptcal.find_links(other, kept)
        masks = apply_labels(
            pseudo, draw_negatives(pseudo, 9, torch.rand(8, 8)), torch.tensor([0, 1, -1, -1]).repeat(2), bank_labels
        )
        affinity = affinity_contrast(F.normalize(rows, dim=1), other, kept, *masks)
        torch.testing.assert_close(terms[f"{name}affinity"], affinity)
        own = promptcal.taught_loss(head(rows), taught[branch][1], torch.tensor([0, 1, -1, -1]), affinity, 0.6)
        total = total + (0.35 if name else 1) * own["loss"]
    torch.testing.assert_close(terms["loss"], total)


# --- bank, teacher, switch ---------------------------------------------------------------------------------


def test_the_bank_keeps_the_teachers_unit_rows_only_in_training(capsys):
    promptcal, seen = method(), encoded(3)
    taught = taught_by(promptcal, encoded(3, seed=1))
    first = promptcal.eval().loss(step([0, 1, -1], seen, taught))
    assert len(promptcal.bank) == 0
    assert first["affinity"] == first["prompt_affinity"] == 0  # nothing to compare with yet
    promptcal.train().loss(step([0, 1, -1], seen, taught))
    assert torch.equal(promptcal.bank.rows, torch.cat([rows for rows, _ in taught], dim=1))
    torch.testing.assert_close(promptcal.bank.rows.norm(dim=1), torch.full((6,), 2**0.5))
    assert "bank.ring" in promptcal.state_dict()  # a resumed run goes on with it
    promptcal.begin(torch.full((10,), -1))
    assert "larger than the 10 training images" in " ".join(capsys.readouterr().err.split())
    assert len(promptcal.bank.ring) == 10


@pytest.mark.parametrize(("pairs", "on_prompts"), [(1024, set()), (1, {"prompt_loss", "prompt_affinity"})])
def test_published_the_class_token_alone_looks_for_the_same_view(pairs, on_prompts, monkeypatch):
    """Where positives are more than the pairs, negatives differ too, on both."""
    monkeypatch.setattr(PromptCAL, "find_links", lambda _, rows, bank: torch.arange(20).expand(len(rows), -1) < 3)
    terms = []
    for as_published in (False, True):
        promptcal = method(as_published=as_published, pairs=pairs)
        promptcal.bank.push(torch.randn(20, 16, generator=torch.Generator().manual_seed(2)))
        terms.append(promptcal.loss(step([0, -1], encoded(2), taught_by(promptcal, encoded(2, seed=1)))))
    right, published = terms
    assert {name for name in right if right[name] != published[name]} == {"loss", "affinity"} | on_prompts


def test_negatives_come_from_torchs_generator():
    promptcal = method(pairs=4).eval()
    promptcal.bank.push(torch.randn(24, 16))
    again = step([0, -1], encoded(2), taught_by(promptcal, encoded(2, seed=1)))
    values = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        values.append(promptcal.loss(again)["affinity"].item())
    assert values[0] == values[1] != values[2]


def test_the_teacher_is_a_slow_average():
    assert method().teacher_momentum(Progress(0, 100)) == 0.999
    assert not PromptCAL.teacher_answers
    assert method(Stage1).teacher_momentum(Progress(0, 200)) is None


# --- every batch, and settings -----------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"as_published": True}, {"neighbours": 50, "pairs": 1, "quantile": 1.0}])
@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1], [-1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels, settings):
    promptcal = method(**settings)
    for number in range(4):  # with a bank that fills
        seen = encoded(len(labels), seed=number, prompts=1 if number == 3 else 5)
        promptcal.zero_grad()
        terms = promptcal.loss(step(labels, seen, taught_by(promptcal, encoded(len(labels), seed=9 + number))))
        terms["loss"].backward()
        assert all(math.isfinite(value.item()) for value in terms.values())
        trained = (seen.feature, seen.prompts, *promptcal.parameters())
        assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)


def test_equal_images_have_a_finite_loss():
    promptcal, same = method(), Encoded(torch.ones(6, 8), prompts=torch.ones(6, 5, 8))
    for _ in range(3):
        assert promptcal.loss(step([0, -1, 1], same, taught_by(promptcal, same)))["loss"].isfinite()


def test_mixed_precision_keeps_the_loss_in_float32():
    promptcal, seen = method(), encoded(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        taught = taught_by(promptcal, encoded(4, seed=1))
    halved = Encoded(seen.feature, prompts=seen.prompts.bfloat16())
    for _ in range(2):
        terms = promptcal.loss(step([0, 1, -1, -1], halved, taught))
        assert all(value.dtype == torch.float32 and value.isfinite() for value in terms.values())
    assert promptcal.bank.rows.dtype == torch.float32


def test_settings():
    config = resolve({"data": {"name": "cub"}, "method": {"name": "promptcal"}})
    assert (config.tuning["name"], config.tuning["count"], config.train.epochs) == ("prompts", 5, 100)
    assert resolve({"data": {"name": "cub"}, "method": {"name": "promptcal-stage1"}}).train.epochs == 200
    with pytest.raises(NewkindsError, match=r"method\.quantile' must be a number from 0 to 1"):
        method(quantile=1.2)
    with pytest.raises(NewkindsError, match=r"method\.neighbours' must be a whole number"):
        method(neighbours=0)


# --- two stages --------------------------------------------------------------------------------------------


def test_the_second_stage_starts_from_the_first(tmp_path, capsys):
    small = {"method": {"output_dim": 64, "projection_hidden": 16}, "train": {"epochs": 1}}

    def train(stage, folder, **settings):
        layers = [TINY_TRAINING, small, {"train": settings}]
        newkinds.train("creatures", tmp_path / folder, method=stage, settings=layers)
        return load_file(tmp_path / folder / "model.safetensors")

    with pytest.raises(NewkindsError, match="promptcal is a second stage, which starts from a run of promptcal-stage1"):
        train("promptcal", "alone", epochs=1)
    first = train("promptcal-stage1", "first", epochs=1)
    second = train("promptcal", "second", lr=0.0, start=str(tmp_path / "first"))  # nothing is learnt after the start
    names = [name for name in first if not name.startswith(("calibration.", "method.classifier."))]
    assert {"encoder.backbone.tuning.values", "method.head.directions.prototypes"} < set(names)
    afresh = {name for name in names if not torch.equal(first[name], second[name])}
    assert "method.prompt_head.directions.prototypes" in afresh
    assert all(name.startswith("method.prompt_head.") for name in afresh)
    assert second["method.bank.ring"].any()
    said = " ".join(capsys.readouterr().err.split())
    assert "trained tensors" in said
    assert "without a start there: method.prompt_head" in said
    again = train("promptcal", "again", lr=0.0, start=str(tmp_path / "second"))  # of its own kind, all is taken over
    assert [name for name in names if not torch.equal(second[name], again[name])] == []

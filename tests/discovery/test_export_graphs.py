"""Every organizer, tuning, method and assigner that is registered, written down as ONNX and as torch code: the same
answers as the run's own code gives, whatever the number of images."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from timm.layers import HybridEmbed
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_hybrid import ConvStem
from torch import Tensor, nn

from conftest import learns_prototypes, small_heads
from newkinds.assigners import ASSIGNERS
from newkinds.assigners.extension import Extension
from newkinds.assigners.prototypes import PrototypeClassifier
from newkinds.data.creatures import drawing
from newkinds.discovery.export.graph import Answer, Classifier, capture
from newkinds.discovery.export.torch import module_source
from newkinds.discovery.export.torch_source import write_out
from newkinds.encoders import backbones
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tunings import TUNINGS
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS
from newkinds.runs.config import resolve
from newkinds.training.model import Model, build_model

SIZE, KNOWN, K = 32, 4, 8
VARIANTS: list[dict[str, Any]] = [
    {"organizer": "cpf", "settings": {"organizer": {"readout": "gated"}}},
    {"organizer": "coge", "settings": {"organizer": {"variant": "release"}}},
]


def cases() -> list[dict[str, Any]]:
    """Each method once, with the next of the organizers, tunings and assigners: all that is registered occurs."""
    organizers = cycle([*({"organizer": name} for name in ORGANIZERS), *VARIANTS])
    tunings = cycle(name for name in TUNINGS if name != "pixels")  # those want two views of an image
    whitenings = cycle([0.5, "none"])
    assigners = cycle(name for name in ASSIGNERS if not ASSIGNERS[name].learnt)
    found = []
    for name in METHODS:
        case = {"method": name, **next(organizers)}
        if not METHODS[name].tuning_defaults:
            case["tuning"] = next(tunings)
        if not learns_prototypes(name):
            case |= {"assigner": next(assigners), "whiten": next(whitenings)}
        found.append(case)
    return found


CASES = cases()
# networks of timm: a ViT that pools its patches, CNNs with and without batch norms
NETWORKS = ("test_vit2", "test_resnet", "test_convnext")
CASES += [{"method": "gcd", "organizer": "patches", "backbone": name} for name in NETWORKS]


def bring_something_new(cases: list[dict[str, Any]]) -> list[bool]:
    """Whether a case has an organizer, tuning, assigner, whitening or network that none before it has. ONNX is asked
    about these only: the graph is the one that becomes torch code, and writing it as ONNX takes longest."""
    seen: set[tuple[str, str]] = set()
    found = []
    for case in cases:
        parts = {(part, str(value)) for part, value in case.items() if part != "method"}
        found.append(not parts <= seen)
        seen |= parts
    return found


WITH_ONNX = bring_something_new(CASES)
EXPORTED = [
    pytest.param(case, with_onnx, id="-".join(str(value) for value in case.values()))
    for case, with_onnx in zip(CASES, WITH_ONNX, strict=True)
]
EXPORTED += [
    pytest.param(case, True, id="-".join([*(str(value) for value in case.values()), "onnx"]), marks=pytest.mark.long)
    for case, with_onnx in zip(CASES, WITH_ONNX, strict=True)
    if not with_onnx
]


def test_all_that_is_registered_is_exported_here() -> None:
    assert {case["organizer"] for case in CASES} == set(ORGANIZERS)
    assert {case["assigner"] for case in CASES if "assigner" in case} | {"prototypes"} == set(ASSIGNERS)
    defaults = {METHODS[case["method"]].tuning_defaults.get("name") for case in CASES}
    assert {case["tuning"] for case in CASES if "tuning" in case} | defaults >= set(TUNINGS)
    assert all(variant["settings"] in [case.get("settings") for case in CASES] for variant in VARIANTS)


def small_vit(size: int) -> VisionTransformer:
    """The bundled network with one block instead of four: what is tested is everything around it."""
    stem = ConvStem(depth=2, channels=(8, 48), stride=(4, 2), padding=1)
    embed: Any = partial(HybridEmbed, backbone=stem, proj=False)
    return VisionTransformer(size, 1, embed_dim=48, depth=1, num_heads=3, num_classes=0, embed_layer=embed)


@pytest.fixture(autouse=True)
def small_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "tiny_vit", small_vit)
    monkeypatch.setattr(backbones, "load_weight_file", lambda network, file: None)
    monkeypatch.setattr(backbones, "weights_file", lambda name, weights=None: None)  # random ones serve as well


@pytest.fixture(scope="module")
def images() -> Tensor:
    """(64, 3, SIZE, SIZE) between 0 and 1: creatures of eight kinds."""
    kinds = drawing.kinds(K, 0, "evaluated")
    drawn = [drawing.draw_creature(kinds[i % K], np.random.default_rng(i), SIZE)[0] for i in range(64)]
    return torch.from_numpy(np.stack(drawn)).permute(0, 3, 1, 2).float() / 255


def finished(
    images: Tensor, organizer: str = "none", method: str = "simgcd", assigner: str = "own",
    whiten: float | str = "none", tuning: str | None = None, backbone: str = "tiny",
    settings: dict[str, Any] | None = None,
) -> Model:  # fmt: skip
    """A model whose categories were found and calibrated, without training."""
    heads = small_heads(method, projection_hidden=16, projection_dim=8, output_dim=16, bank=8)
    config = resolve(
        {
            "data": {"name": "creatures"}, "k": K,
            "backbone": {  # what is exported computes in float32 on any machine
                "name": backbone, "image_size": SIZE, "train_blocks": 1, "precision": "float32",
            },
            "train": {"epochs": 1},
            "organizer": {"name": organizer}, "method": {"name": method, **heads}, "assigner": {"name": assigner},
            "embedding": {"whiten": whiten}, **({"tuning": {"name": tuning}} if tuning else {}),
        },
        settings or {},
    )  # fmt: skip
    torch.manual_seed(0)
    model = build_model(config, [f"kind {i}" for i in range(KNOWN)], K).eval()
    if model.encoder.organizer.starts_from_tokens:
        model.encoder.organizer.start(model.encoder.backbone(normalised(model, images)))
    for name, parameter in model.named_parameters():
        if ".up" in name or ".tuning." in name:  # what begins at 0 would hide a mistake
            nn.init.normal_(parameter, std=0.1)
    labels = torch.arange(len(images)) % K
    with torch.no_grad():
        features = model.encoder(normalised(model, images)).feature.float()
    assigner = model.chosen_assigner
    if isinstance(assigner, PrototypeClassifier):  # they are not learnt here: some images' embedding instead
        with torch.no_grad():
            assigner.prototypes.copy_(model.embedding(features)[: model.k] - model.embedding(features).mean(dim=0))
    labels[(labels >= KNOWN) | (torch.arange(len(images)) % 4 == 3)] = -1
    model.find_categories(features, labels, seed=0)
    model.calibrate(features, labels, seed=0)
    return model


def normalised(model: Model, images: Tensor) -> Tensor:
    return model.encoder.backbone.preprocessing.normalise((images * 255).round().byte())


def unedited(model: Model) -> Any:
    """Stands for a `Placer` of a run that nobody has corrected."""
    calibration = model.calibration
    lens = SimpleNamespace(names={number: str(number) for number in range(model.categories)}, steps=[])
    extension = Extension(calibration, calibration.centres[:0])
    return SimpleNamespace(model=model, lens=lens, ids=np.arange(model.categories), extension=extension)


def answers_of_onnx(program: torch.export.ExportedProgram, file: Path, some: list[Tensor]) -> list[list[np.ndarray]]:
    onnx = pytest.importorskip("newkinds.discovery.export.onnx")
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    onnx.write_graph(program, file, {})
    session = onnx.session(file)
    return [session(images) for images in some]


@pytest.mark.parametrize(("case", "with_onnx"), EXPORTED)
def test_an_exported_model_says_the_same(case: dict[str, Any], with_onnx: bool, images: Tensor, tmp_path: Path) -> None:
    """Three times: the run's own code, the torch code that was written out, the ONNX graph."""
    model = finished(images, **case)
    with torch.inference_mode():
        features = model.encoder(normalised(model, images)).feature.float()
    wanted, embedding = model.assign(features), model.embedding(features)
    logits = model.naming(model.chosen_assigner(embedding))
    shares = (logits / model.chosen_assigner.temperature).softmax(dim=1)
    assert len(wanted.category.unique()) > 2  # else anything would be right

    program = capture(Classifier(unedited(model)), SIZE)
    lines, weights = write_out(program)
    (tmp_path / "model.py").write_text(module_source(lines, SIZE))
    module: dict[str, Any] = {}
    exec((tmp_path / "model.py").read_text(), module)
    some = [images[:1], images[1:6], images[6:]]
    answers = [[module["classify"](weights, part) for part in some]]
    if with_onnx:
        answers.append(answers_of_onnx(program, tmp_path / "model.onnx", some))
    for found in answers:
        answer = Answer(*(torch.cat([torch.as_tensor(part[i]) for part in found]) for i in range(len(Answer._fields))))
        assert answer.category.tolist() == wanted.category.tolist()
        assert answer.category.dtype == torch.int64
        torch.testing.assert_close(answer.embedding, embedding, atol=1e-5, rtol=0)
        torch.testing.assert_close(answer.probabilities, shares, atol=1e-4, rtol=0)
        torch.testing.assert_close(answer.confidence, wanted.confidence, atol=1e-4, rtol=0)
        assert wanted.unlike is not None
        torch.testing.assert_close(answer.unlike, wanted.unlike, atol=1e-3, rtol=1e-3)


def test_a_run_that_was_never_calibrated_does_not_know_what_is_unlike(images: Tensor) -> None:
    model = finished(images, "cpf", "frozen")
    model.calibration.centres = torch.empty(0, 0)
    answer = Classifier(unedited(model))(images[:3])
    assert answer.unlike.isnan().all()
    assert answer.confidence.tolist() == answer.probabilities.amax(dim=1).tolist()


def test_what_decides_by_values_is_refused_in_our_words(images: Tensor, capfd: pytest.CaptureFixture[str]) -> None:
    model = finished(images)

    class Deciding(nn.Module):
        reads_patches = False

        def organize(self, tokens: Any, details: bool = False) -> Any:
            return SimpleNamespace(feature=tokens.cls if tokens.cls.sum() > 0 else -tokens.cls)

    model.encoder.organizer = Deciding()  # type: ignore[assignment]
    with pytest.raises(NewkindsError, match="cannot be written down as one graph: something in it decides"):
        capture(Classifier(unedited(model)), SIZE)
    assert capfd.readouterr() == ("", "")  # torch explains itself to its developers

"""What every organizer, assigner, counter … promises, asked of ours; a new one is tested by being registered. What
methods promise is asked in tests/training/test_contract.py, in fewer trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from newkinds.contracts import CONTRACTS, AskedPart, Contract, hosted
from newkinds.contracts.base import ASKED, NotAsked
from newkinds.contracts.counters import separated_groups_are_counted
from newkinds.contracts.organizers import starts_near_the_class_token

SETTINGS: dict[str, dict[str, Any]] = {"pim": {"steps": 60, "restarts": 3}, "creatures": {"per_category": 4}}
OF_MODELS = ("onnx", "torch")  # they write the model, in many seconds: tests/verbs/test_export_models.py
OTHERWISE = {  # what ours are known to do otherwise, and why
    (starts_near_the_class_token, "parts"): "it drops the class token",
    (separated_groups_are_counted, "binary"): "so does the published search",
    (separated_groups_are_counted, "brent"): "so does the published search",
}


def names_of(kind: str) -> list[str]:
    if kind == "data set":
        return ["creatures"]  # the others need files: tests/data
    return [name for name in ASKED[kind] if name not in (*OF_MODELS, "tensorboard")]


def marks_of(kind: str, name: str, contract: Contract) -> list[pytest.MarkDecorator]:
    """A tuning and an assigner are in runs here, organizers in tests/training/test_contract.py."""
    is_hosted = contract.ask.__module__ == hosted.__name__
    return [pytest.mark.long] if is_hosted and (kind, name) not in HOSTED else []


HOSTED = (("tuning", "prompts"), ("assigner", "em"))
CASES = [
    pytest.param(
        AskedPart(kind, name, Path(), SETTINGS.get(name, {})), contract, id=f"{kind}-{name}-{contract.ask.__name__}",
        marks=marks_of(kind, name, contract),
    )
    for kind in ASKED
    if kind != "method"
    for name in names_of(kind)
    for contract in CONTRACTS[kind]
]  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contracts")


@pytest.mark.parametrize(("part", "contract"), CASES)
def test_it_holds(part: AskedPart, contract: Contract, shared: Path) -> None:
    # exports share the run that they export, and each writes beside the others
    folder = shared / (part.kind if part.kind == "export" else f"{part.kind}-{part.name}")
    folder.mkdir(exist_ok=True)
    try:
        remark = contract.ask(AskedPart(part.kind, part.name, folder, part.settings))
    except NotAsked as why:
        pytest.skip(str(why))
    assert (remark is not None) == ((contract.ask, part.name) in OTHERWISE), remark

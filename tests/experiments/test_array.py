"""The documented array of SLURM: tasks that type the same command share the cells of a table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "scale.md"
STATED = "plugin --out /shared/runs/birds --data /shared/birds --set data.known=0.5"
SMALL = (
    "--set data.categories=4 --set data.per_category=8 --set train.batch_size=16 --set method.projection_hidden=32 "
    "--epochs 1 --baselines none"
)


@pytest.mark.long
def test_the_tasks_of_an_array_share_the_cells(tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(#!/bin/bash\n#SBATCH --array.*?)```", DOCS.read_text(), re.DOTALL)
    ours = {
        "/shared/newkinds-cache": str(tmp_path / "cache"),
        STATED: f"plugin --out {tmp_path / 'runs'} --data creatures {SMALL}",
        "--methods simgcd,cms --organizers none,adapter,cpf": "--methods simgcd --organizers none,adapter",
        "newkinds bench": f"{sys.executable} -m newkinds bench",
    }
    for theirs, mine in ours.items():
        assert theirs in script
        script = script.replace(theirs, mine)
    tasks = [
        subprocess.Popen(
            ["bash", "-c", script], env={**os.environ, "SLURM_ARRAY_TASK_ID": str(number)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in range(2)
    ]  # fmt: skip
    said = [task.communicate(timeout=300)[1] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], said
    trained = [text.count("epoch 1/1") for text in said]
    assert sum(trained) == 6, "each cell once"
    assert min(trained) > 0, "and by both tasks"
    assert "failed" not in "".join(said)

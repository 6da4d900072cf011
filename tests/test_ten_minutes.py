"""docs/ten_minutes.md, followed word by word in a smaller size, and the plugins in examples/."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from newkinds.contracts.plugin import check_plugin

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "ten_minutes.md").read_text(encoding="utf-8")
Cli = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("registries_as_before")
TINY = ["--epochs", "1", "--set", "data.categories=4", "--set", "data.per_category=8", "--set", "train.batch_size=16"]
SMALLER = {"bench": [*TINY, "--seeds", "0", "--organizers", "none,adapter"], "train": TINY}


def test_whoever_follows_the_page_gets_a_row_of_latex(
    run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"<!-- file: agree.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert code == (ROOT / "examples" / "agree.py").read_text(encoding="utf-8"), "which mypy checks"
    assert len(code.splitlines()) <= 40
    (tmp_path / "agree.py").write_text(code, encoding="utf-8")
    said: list[str] = []
    for block in re.findall(r"<!-- run -->\n```sh\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            program, verb, *arguments = shlex.split(line)
            assert program == "newkinds"
            status, out, err = run_cli(verb, *arguments, *SMALLER.get(verb, []))
            assert status == 0, f"{line}\n{out}\n{err}"
            said.append(out)
    checked, _, _, markdown, latex = said
    [expected] = re.findall(r"```\n(method 'agree'.*?)```", PAGE, re.DOTALL)
    assert set(expected.splitlines()) - {"  …"} <= set(checked.splitlines())
    assert re.search(r"^\| Agree( †)? +\|", markdown, re.MULTILINE)
    names = [line.partition("&")[0] for line in latex.splitlines() if line.endswith(r"\\")]
    rows = {name.replace(r"$^\dagger$", "").strip().lower() for name in names}  # †: collapsed, in one epoch
    assert {"frozen + sskmeans", "simgcd", "simgcd + adapter", "agree", "agree + adapter"} <= rows
    assert "agree.py" in latex, "the protocol names its file"


def test_the_organizer_in_examples_holds_all_contracts() -> None:
    broken = [answer for answer in check_plugin(ROOT / "examples" / "cpf_maximum.py") if answer.outcome == "broken"]
    assert [answer.reason for answer in broken] == []

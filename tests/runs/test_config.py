"""Settings: layers, checks, and errors that name the setting."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from newkinds.errors import NewkindsError
from newkinds.methods import METHODS
from newkinds.runs.config import resolve
from newkinds.runs.run import Run
from newkinds.settings import Range, parse_assignment, read_recipe
from newkinds.verbs.choices import layers_of

CREATURES = {"data": {"name": "creatures"}}


def test_later_layers_win_and_defaults_fill_in() -> None:
    config = resolve(CREATURES, {"train": {"epochs": 5, "lr": 0.2}}, {"train": {"epochs": 7}})
    assert (config.train.epochs, config.train.lr, config.train.batch_size) == (7, 0.2, 128)
    assert config.organizer == {"name": "none"}
    assert config.method["name"] == "simgcd"


def test_config_survives_being_written_and_read(tmp_path: Path) -> None:
    config = resolve(CREATURES, {"organizer": {"name": "cpf", "primitives": 16, "heads": 16}}, {"k": 12})
    (tmp_path / "config.yaml").write_text(config.as_yaml())
    assert resolve(read_recipe(tmp_path / "config.yaml")) == config


def test_the_data_root_is_absolute_wherever_it_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cub = {"data": {"name": "cub"}}
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEWKINDS_DATA", raising=False)
    assert resolve(cub).data["root"] is None
    assert resolve(cub, {"data": {"root": "sets"}}).data["root"] == str(tmp_path / "sets")
    monkeypatch.setenv("NEWKINDS_DATA", "elsewhere")
    assert resolve(cub).data["root"] == str(tmp_path / "elsewhere")
    assert resolve(cub, {"data": {"root": "sets"}}).data["root"] == str(tmp_path / "sets"), "what is said wins"
    assert "root" not in resolve(CREATURES).data


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"train": {"epoch": 3}}, "'train.epoch'. Did you mean 'epochs'"),
        ({"trian": {"epochs": 3}}, "Did you mean 'train'"),
        ({"method": {"name": "simgdc"}}, "Did you mean 'simgcd'"),
        ({"method": {"memax_wieght": 1}}, "Did you mean 'memax_weight'"),
        ({"organizer": {"name": "cpf", "slots": 3}}, "'organizer.slots'"),
        ({"organizer": {"cpf": {"primitves": 3}}}, "'organizer.cpf.primitves'. Did you mean 'primitives'"),
        ({"organizer": {"cfp": {"primitives": 3}}}, "no organizer called 'cfp'. Did you mean 'cpf'"),
        ({"organizer": {"primitives": 3}}, "'organizer.primitives'"),
        ({"train": {"epochs": "many"}}, "'train.epochs' must be a whole number of at least 0, not 'many'"),
        ({"train": {"epochs": -1}}, "'train.epochs' must be a whole number of at least 0, not -1"),
        ({"train": {"batch_size": 0}}, "'train.batch_size' must be a whole number of at least 1, not 0"),
        ({"train": {"workers": -2}}, "'train.workers' must be a whole number from -1 to 256, not -2"),
        ({"train": {"cache_views": -1}}, "whole number from 1 to 10000 or one of 0, auto, not -1"),
        ({"train": {"cache_views": False}}, "'train.cache_views'"),
        ({"train": {"lr": float("inf")}}, "'train.lr' must be a number of at least 0, not inf"),
        ({"train": {"lr": 10**400}}, "'train.lr'"),
        ({"method": {"sup_weight": 1.5}}, "'method.sup_weight' must be a number from 0 to 1, not 1.5"),
        ({"method": {"student_temp": 0}}, "'method.student_temp' must be a number above 0, not 0"),
        ({"data": {"per_category": 1}}, "'data.per_category' must be a whole number of at least 2, not 1"),
        ({"organizer": {"name": "cpf", "data_temperature": ".nan"}}, "'organizer.data_temperature' must be"),
        ({"train": {"epochs": 2.5}}, "whole number"),
        ({"train": {"lr": -1}}, "'train.lr'"),
        ({"train": {"lr": float("nan")}}, "'train.lr'"),
        ({"train": {"precision": "int8"}}, "one of auto, float32"),
        ({"train": 3}, "must hold settings"),
        ({"k": "ten"}, "'k' must be"),
        ({"data": {"name": "creatures", "dim": 3}}, "'data.dim'"),
        ({"data": {"name": "folder", "path": "a", "known": "cat"}}, r"number or a list \[text, …\] or null, not"),
        ({"data": {"name": "folder", "path": "a", "known": [["cat"]]}}, "'data.known' must be"),
    ],
)
def test_mistakes_are_named(layer: dict[str, object], message: str) -> None:
    with pytest.raises(NewkindsError, match=message):
        resolve(CREATURES, layer)


def test_lists_of_names() -> None:
    known = resolve({"data": {"name": "folder", "path": "a"}}, parse_assignment("data.known=[cat, 7]")).data["known"]
    assert known == ["cat", "7"]


def test_another_organizer_does_not_inherit_settings() -> None:
    config = resolve(CREATURES, {"organizer": {"name": "cpf", "primitives": 4}}, {"organizer": {"name": "none"}})
    assert config.organizer == {"name": "none"}


def test_settings_under_a_name_wait_until_it_is_chosen() -> None:
    recipe = {"organizer": {"cpf": {"primitives": 16, "heads": 16}}}
    assert resolve(CREATURES, recipe).organizer == {"name": "none"}
    chosen = resolve(CREATURES, recipe, {"organizer": {"name": "cpf"}}).organizer
    assert (chosen["primitives"], chosen["heads"]) == (16, 16)
    set_plainly = resolve(CREATURES, recipe, {"organizer": {"name": "cpf"}}, {"organizer": {"primitives": 4}}).organizer
    assert (set_plainly["primitives"], set_plainly["heads"]) == (4, 16)


def test_waiting_settings_outlive_another_choice() -> None:
    recipe = {"organizer": {"name": "patches", "cpf": {"primitives": 16}}}
    assert resolve(CREATURES, recipe).organizer == {"name": "patches"}
    assert resolve(CREATURES, recipe, {"organizer": {"name": "cpf"}}).organizer["primitives"] == 16


def test_no_data() -> None:
    with pytest.raises(NewkindsError, match="no data given"):
        resolve({})


@pytest.mark.parametrize(
    ("text", "value"),
    [("train.lr=1e-3", 0.001), ("train.lr=0.5", 0.5), ("train.lr= 2", 2.0)],
)
def test_numbers_on_the_command_line(text: str, value: float) -> None:
    assert resolve(CREATURES, parse_assignment(text)).train.lr == value


@pytest.mark.parametrize("text", ["train.lr", "lr=3", "=3", "a.b.c=3", "train.=3"])
def test_assignments_that_are_none(text: str) -> None:
    with pytest.raises(NewkindsError, match=r"section\.name=value"):
        parse_assignment(text)


@pytest.mark.parametrize("text", ["train: [", "- 1\n- 2", "just text", "!!python/object:os.system x"])
def test_recipes_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(NewkindsError, match=r"r\.yaml"):
        read_recipe(tmp_path / "r.yaml")


def test_a_recipe_that_never_ends(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"/dev/zero has more than 1,048,576 bytes"):
        read_recipe("/dev/zero")
    (tmp_path / "r.yaml").write_bytes(b"# " + b"x" * 2**20)
    with pytest.raises(NewkindsError, match=r"r\.yaml has more than"):
        read_recipe(tmp_path / "r.yaml")


def test_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="cannot read"):
        read_recipe(tmp_path / "none.yaml")


def test_settings_that_wait_are_added_to_not_replaced() -> None:
    recipe = {"data": {"name": "creatures"}, "organizer": {"cpf": {"primitives": 16, "heads": 16}}}
    config = resolve(recipe, {"organizer": {"cpf": {"heads": 4}}}, {"organizer": {"name": "cpf"}})
    assert (config.organizer["primitives"], config.organizer["heads"]) == (16, 4)


def test_weight_files_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = resolve({"data": {"name": "creatures"}, "backbone": {"weights": "w.pth"}})
    assert config.backbone["weights"] == str(tmp_path / "w.pth")


def test_a_number_without_a_range_may_be_negative_but_is_finite() -> None:
    @dataclass
    class Config(METHODS["legogcd"].Config):  # inherits settings whose types this module does not import
        slope_weight: float = -1.0
        steps: Annotated[int, Range(above=-3, below=3)] = -2
        pull: Annotated[float | None, Range(most=0)] = None

    assert Config(slope_weight=-2.5).slope_weight == -2.5
    assert Config(pull=-1).pull == -1.0
    for setting, value, words in [
        ("slope_weight", float("nan"), "must be a number, not nan"),
        ("slope_weight", float("-inf"), "must be a number, not -inf"),
        ("steps", -3, "must be a whole number above -3 and below 3, not -3"),
        ("pull", 0.5, "must be a number or null of at most 0, not 0.5"),
        ("known_threshold", 2, "must be a number from 0 to 1, not 2"),
    ]:
        with pytest.raises(NewkindsError, match=f"'method.{setting}' {words}"):
            Config(**{setting: value})


def test_a_small_file_of_nested_aliases_is_refused_at_once(tmp_path: Path) -> None:
    """Each line holds the one before nine times: a thousand million values, if anything looked at them all."""
    lines = ["a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    names = "abcdefghi"
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in itertools.pairwise(names)]
    (tmp_path / "laughs.yaml").write_text("\n".join([*lines, "k: *i"]))
    with pytest.raises(NewkindsError, match=r"laughs\.yaml cannot be read.*: aliases such as \*a are not .*line 2"):
        read_recipe(tmp_path / "laughs.yaml")


@pytest.mark.parametrize("value", ["[&a 1, *a]", "[" * 5000])
def test_aliases_and_endless_nesting_on_the_command_line_are_no_values(value: str) -> None:
    assert parse_assignment(f"k={value}") == {"k": value}


def test_endless_nesting_in_a_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.yaml").write_text("k: " + "[" * 5000)
    with pytest.raises(NewkindsError, match=r"deep\.yaml cannot be read as settings"):
        read_recipe(tmp_path / "deep.yaml")


def test_a_setting_that_is_said_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("train: {epochs: 1}\nk: 3\ntrain: {epochs: 2}\n")
    with pytest.raises(NewkindsError, match=r"twice\.yaml cannot be read as settings: 'train' is said twice"):
        read_recipe(tmp_path / "twice.yaml")


@pytest.mark.parametrize("text", ["010", "08", "0x10", "0b11", "1_0", "-010"])
def test_a_number_that_could_be_read_in_two_ways_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=f"'train.epochs' must be .*not '{text}'"):
        resolve(CREATURES, parse_assignment(f"train.epochs={text}"))
    with pytest.raises(NewkindsError, match=f"k.*{text}"):
        resolve(CREATURES, parse_assignment(f"k={text}"))
    assert parse_assignment(f"data.known=[{text}, cat]") == {"data": {"known": [text, "cat"]}}  # a name stays one
    (tmp_path / "recipe.yaml").write_text(f"train: {{epochs: {text}}}\n")
    with pytest.raises(NewkindsError, match=r"'train\.epochs' must be"):
        resolve(CREATURES, read_recipe(tmp_path / "recipe.yaml"))


def test_what_is_under_a_name_and_what_is_plain_win_by_their_order() -> None:
    """A recipe says a setting of its method plainly, `--set method.simgcd.…` later under its name, or the other way."""
    plain, named = {"method": {"name": "simgcd", "memax_weight": 2}}, {"method": {"simgcd": {"memax_weight": 3}}}
    other = {"method": {"name": "gcd"}}
    assert resolve(CREATURES, plain, named).method["memax_weight"] == 3
    assert resolve(CREATURES, named, plain).method["memax_weight"] == 2
    assert "memax_weight" not in resolve(CREATURES, plain, named, other).method
    assert resolve(CREATURES, named, other, {"method": {"name": "simgcd"}}).method["memax_weight"] == 3
    with pytest.raises(NewkindsError, match=r"no setting 'method.simgcd.memax_wieght'. Did you mean 'memax_weight'"):
        resolve(CREATURES, parse_assignment("method.simgcd.memax_wieght=3"), other)


def test_settings_under_cpfs_name_are_over_those_of_a_family() -> None:
    backbone = {"backbone": {"name": "vit_small_patch14_dinov2"}, "organizer": {"name": "cpf"}}
    assert resolve(CREATURES, backbone, parse_assignment("organizer.cpf.readout=delta")).organizer["readout"] == "delta"


def test_several_recipes_are_taken_in_their_order_and_none_in_silence(
    run_cli: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("method: {name: simgcd, memax_weight: 3}\ntrain: {epochs: 3, lr: 0.5}\n")
    second.write_text("train: {epochs: 2}\norganizer: {name: adapter}\n")
    config = resolve(CREATURES, *layers_of(None, {"recipe": [first, second]}))
    assert (config.train.epochs, config.train.lr, config.organizer["name"]) == (2, 0.5, "adapter")
    assert config.method["memax_weight"] == 3
    assert capfd.readouterr().err == ""
    second.write_text("method: {name: gcd}\n")
    layers_of(None, {"recipe": [first, second]})
    assert "names another method: method.memax_weight of an earlier recipe is left out" in capfd.readouterr().err
    first.write_text("train: {epochs: 0}\n")
    command = ("train", "creatures", "--out", tmp_path / "run", "--recipe", first, "--recipe", second)
    assert run_cli(*command)[0] == 0
    assert (Run(tmp_path / "run").config().train.epochs, Run(tmp_path / "run").config().method["name"]) == (0, "gcd")

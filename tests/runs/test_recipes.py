"""Every recipe against the table of published hyper-parameters; no data set is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import newkinds
from newkinds.data.published import BENCHMARKS
from newkinds.data.published.classes import read_class_list
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tunings import TUNINGS
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS
from newkinds.registry import Registry
from newkinds.runs.config import Config, resolve
from newkinds.settings import find_recipe, read_recipe, recipe_names, settings_of

ROOT = Path(__file__).resolve().parents[2]

# a column for each data set, as in the published scripts; train_blocks counts from the last of 12 blocks
DATASETS = ("cub", "cars", "aircraft", "cifar10", "cifar100", "imagenet100", "herbarium19")
PUBLISHED: dict[str, dict[str, tuple[object, ...]]] = {
    "gcd": {
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (True,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.kmeans_restarts": (100,) * 7,
        "method.kmeans_iterations": (200,) * 7,
        "method.as_published": (True,) * 7,
    },
    "dccl": {
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (True,) * 7,  # assumed, as in GCD
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_norm": (True,) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.neighbours": (15,) * 7,
        "method.min_similarity": (0.6,) * 7,
        "method.smallest_community": (5,) * 7,
        "method.partition": ("infomap",) * 7,
        "method.concept_temp": (0.05,) * 7,
        "method.start_concept_weight": (0.04,) * 7,
        "method.concept_weight": (0.4,) * 7,
        "method.concept_warmup_epochs": (100,) * 7,
        "method.memory_momentum": (0.1,) * 7,
        "method.kmeans_restarts": (100,) * 7,
        "method.kmeans_iterations": (200,) * 7,
        "method.as_published": (True,) * 7,
    },
    "promptcal-stage1": {
        "train.epochs": (200, 200, 200, 200, 200, 100, 100),
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (True,) * 7,  # assumed, as in GCD
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "tuning.name": ("prompts",) * 7,
        "tuning.count": (5,) * 7,
        "method.supervised_prompts": (2,) * 7,
        "method.prompt_weight": (0.35,) * 7,
        "method.kmeans_restarts": (100,) * 7,
        "method.kmeans_iterations": (200,) * 7,
        "method.as_published": (True,) * 7,
    },
    "promptcal": {
        "train.epochs": (100, 100, 100, 70, 70, 70, 100),
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (True,) * 7,  # assumed, as in GCD
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "tuning.name": ("prompts",) * 7,
        "tuning.count": (5,) * 7,
        "method.supervised_prompts": (2,) * 7,
        "method.prompt_weight": (0.35,) * 7,
        "method.teacher_momentum": (0.999,) * 7,
        "method.bank": (4096, 4096, 4096, 4096, 4096, 4096, 20000),
        "method.neighbours": (5, 5, 5, 10, 10, 10, 7),
        "method.quantile": (0.8, 0.8, 0.8, 0.5, 0.5, 0.5, 0.8),
        "method.pairs": (1024, 1024, 1024, 1024, 1024, 1024, 5000),
        "method.affinity_temp": (0.07,) * 7,
        "method.affinity_weight": (0.6,) * 7,
        "method.affinity_warmup_epochs": (2,) * 7,
        "method.kmeans_restarts": (100,) * 7,
        "method.kmeans_iterations": (200,) * 7,
        "method.as_published": (True,) * 7,
    },
    "infosieve": {
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (1e-4,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (True,) * 7,  # assumed, as in GCD
        "train.draw": ("by_total",) * 7,
        "backbone.train_blocks": (2,) * 7,
        "method.smoothing": (1, 0.5, 0.5, 0.1, 0.1, 0.1, 0.5),
        "method.balanced": (True, True, True, True, True, True, False),
        "method.kmeans_restarts": (10,) * 7,
        "method.kmeans_iterations": (10,) * 7,
        "method.code_length": (40,) * 7,
        "method.as_published": (True,) * 7,
    },
    "gpc": {
        "train.epochs": (60,) * 7,
        "train.batch_size": (256,) * 7,
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (True,) * 7,  # assumed, as in GCD
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.prototype_weight": (1,) * 7,
        "method.warmup_epochs": (1,) * 7,
        "method.prototype_temp": (1.0,) * 7,
        "method.output_dim": (128,) * 7,
        "method.kmeans_iterations": (100,) * 7,
        "method.as_published": (True,) * 7,
    },
    "simgcd": {
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (False,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.memax_weight": (2, 1, 1, 1, 4, 1, 1),
    },
    "legogcd": {
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (False,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.memax_weight": (2, 1, 1, 1, 2, 1, 1),
        "method.known_threshold": (0.7, 0.85, 0.9, 0.95, 0.85, 0.8, 0.7),
        "method.entropy_weight": (2,) * 7,
        "method.margin": (0.4,) * 7,
        "method.as_published": (True,) * 7,
    },
    "protogcd": {
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (False,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.memax_weight": (2,) * 7,
        "method.teacher_temp": (0.05,) * 7,
        "method.hard_share": (0,) * 7,
        "method.separation_weight": (0.05, 0.05, 0.05, 0.1, 0.1, 0.1, 0.05),  # published for cub and cifar100
    },
    "amend": {
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (False,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.memax_weight": (2,) * 7,
        "method.neighbours": (5, 5, 4, 5, 5, 7, 4),
        "method.expansion": (6, 5, 5, 5, 4, 5, 5),
        "method.regulariser_weight": (1,) * 7,
        "method.bank": (2048,) * 7,
        "method.as_published": (True,) * 7,  # mended only so that it runs
        "train.lr_cycle": (30,) * 7,
    },
    "mugcd": {  # assumed, but for the average's momentum
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (False,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "train.start": (None,) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.memax_weight": (2, 1, 1, 1, 1, 1, 1),
        "method.base_momentum": (0.7,) * 7,
        "method.momentum": (0.999,) * 7,
        "method.strong_colour": (True,) * 7,
    },
    "sptnet": {
        "train.epochs": (1000,) * 7,
        "train.lr": (0.05, 0.05, 0.05, 3e-3, 3e-3, 3e-3, 1e-2),
        "train.tuning_lr_ratio": (500, 200, 20, 333.3333, 1666.6667, 1666.6667, 50),  # 25, 10, 1, 1, 5, 5, .5 over lr
        "train.precision": ("float16",) * 7,
        "train.weight_decay": (5e-4,) * 7,
        "train.tuning_decay": (0,) * 7,
        "train.min_lr_ratio": (0.1,) * 7,
        "train.decay_biases": (False,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "train.start": (None,) * 7,
        "backbone.train_blocks": (1,) * 7,
        "tuning.name": ("pixels",) * 7,
        "tuning.where": ("both", "both", "both", "patches", "patches", "both", "both"),
        "tuning.ring": (1,) * 7,
        "tuning.frame": (30,) * 7,
        "tuning.alternate": (20,) * 7,
        "tuning.as_published": (True,) * 7,
        "method.memax_weight": (2, 1, 1, 1, 1, 1, 1),
        "method.warmup_teacher_epochs": (10,) * 7,
    },
    "uno": {  # assumed, but for what UNO's code says of any data set
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (1.5e-4,) * 7,
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (True,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.heads": (5,) * 7,
        "method.overclustering": (3,) * 7,
        "method.student_temp": (0.1,) * 7,
        "method.sinkhorn_epsilon": (0.05,) * 7,
        "method.sinkhorn_iterations": (3,) * 7,
    },
    "cms": {
        "train.lr": (0.05, 0.05, 0.05, 0.01, 0.01, 0.01, 0.05),
        "train.weight_decay": (5e-5,) * 7,
        "train.min_lr_ratio": (5e-3, 5e-3, 5e-3, 1e-3, 1e-3, 1e-3, 5e-3),
        "train.decay_biases": (True,) * 7,
        "train.draw": ("half_labelled",) * 7,
        "backbone.train_blocks": (1,) * 7,
        "method.shifted_temp": (0.25, 0.25, 0.25, 0.3, 0.3, 0.3, 0.25),
        "method.neighbours": (8,) * 7,
        "method.shift": (0.5,) * 7,
        "method.as_published": (True,) * 7,
    },
    "selex": {
        "train.lr": (0.1,) * 7,
        "train.weight_decay": (1e-4, 1e-4, 1e-4, 5e-5, 1e-4, 1e-4, 1e-4),
        "train.min_lr_ratio": (1e-3,) * 7,
        "train.decay_biases": (True,) * 7,
        "train.draw": ("by_total",) * 7,
        "backbone.train_blocks": (2, 3, 2, 2, 2, 2, 2),
        "method.smoothing": (1, 1, 0.5, 0.1, 0.1, 0.1, 1),
        "method.balanced": (True, True, True, True, True, True, False),
        "method.kmeans_restarts": (10,) * 7,
        "method.kmeans_iterations": (10,) * 7,
        "method.as_published": (True,) * 7,
    },
}
ALL_METHODS = {
    "backbone.name": "vit_base_patch16_224.dino",
    "backbone.image_size": None,  # native, 224
    "train.epochs": 200,
    "train.batch_size": 128,
    "train.momentum": 0.9,
    "train.precision": "float32",
    "method.sup_weight": 0.35,
    "method.sup_con_temp": 0.07,
    "organizer.name": "none",
    "k": None,  # as many as the data set has
}
WAITING: dict[str, Registry[Any]] = {"organizer": ORGANIZERS, "tuning": TUNINGS}  # settings of a part, under its name
CPF_SIZE = (12, 12, 12, 16, 16, 16, 12)  # primitives and heads; the last is assumed
CATEGORIES = (200, 196, 100, 10, 100, 100, 683)

ROWS = [(method, dataset) for method in PUBLISHED for dataset in DATASETS]


def recipe_of(method: str, dataset: str) -> dict[str, Any]:
    return read_recipe(find_recipe(f"{method}/{dataset}"))


def value_of(config: Config, setting: str) -> object:
    section, _, name = setting.partition(".")
    values = config.as_dict()[section]
    return values[name] if name else values


def has(config: Config, setting: str) -> bool:  # not every method has a supervised share
    section, _, name = setting.partition(".")
    return section != "method" or name in config.method


def test_every_published_method_has_a_recipe_for_every_data_set() -> None:
    assert recipe_names() == sorted(f"{method}/{dataset}" for method, dataset in ROWS)


@pytest.mark.parametrize(("method", "dataset"), ROWS)
def test_the_values_are_the_published_ones(method: str, dataset: str) -> None:
    config = resolve(recipe_of(method, dataset))
    column = DATASETS.index(dataset)
    expected = {setting: value for setting, value in ALL_METHODS.items() if has(config, setting)}
    expected |= {setting: values[column] for setting, values in PUBLISHED[method].items()}
    expected |= {"method.name": method, "data.name": dataset}
    assert {setting: value_of(config, setting) for setting in expected} == expected


@pytest.mark.parametrize(("method", "dataset"), ROWS)
def test_cpf_is_one_key(method: str, dataset: str) -> None:
    alone = resolve(recipe_of(method, dataset))
    config = resolve(recipe_of(method, dataset), {"organizer": {"name": "cpf"}})
    size = CPF_SIZE[DATASETS.index(dataset)]
    assert (config.organizer["primitives"], config.organizer["heads"]) == (size, size)
    assert {**config.as_dict(), "organizer": None} == {**alone.as_dict(), "organizer": None}


@pytest.mark.parametrize(("method", "dataset"), ROWS)
def test_a_recipe_holds_only_what_differs_from_the_defaults(method: str, dataset: str) -> None:
    recipe = recipe_of(method, dataset)
    names = {"data": {"name": dataset}, "method": {"name": method}}  # always there: they say what the recipe is of
    defaults = resolve(names).as_dict()
    config = resolve(recipe).as_dict()
    waiting = [(registry, recipe.pop(section, {})) for section, registry in WAITING.items()]
    for section, settings in recipe.items():
        for setting in settings:
            if (section, setting) not in (("data", "name"), ("method", "name")):
                assert config[section][setting] != defaults[section][setting], f"{section}.{setting}"
    for registry, parts in waiting:
        for part, settings in parts.items():
            for setting, value in settings.items():
                assert value != settings_of(registry[part])[setting].default, f"{part}.{setting}"


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_class_list_has_the_published_number_of_categories(dataset: str) -> None:
    classes = read_class_list(dataset)
    assert len(classes.known) + len(classes.new) == CATEGORIES[DATASETS.index(dataset)]


@pytest.mark.parametrize("name", recipe_names())
def test_the_first_line_says_what_it_is(name: str) -> None:
    method, dataset = name.split("/")
    title = f"# {METHODS[method].__name__} on {BENCHMARKS[dataset].title}"
    assert find_recipe(name).read_text(encoding="utf-8").startswith(title)


def test_a_recipe_is_found_by_name_and_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = find_recipe("simgcd/cub")
    assert packaged.is_relative_to(Path(newkinds.__file__).parent)
    assert (ROOT / "recipes" / "simgcd" / "cub.yaml").read_bytes() == packaged.read_bytes()
    mine = tmp_path / "simgcd" / "cub.yaml"
    mine.parent.mkdir()
    mine.write_text("train: {epochs: 1}\n")
    monkeypatch.chdir(tmp_path)
    assert find_recipe("simgcd/cub") == packaged
    assert find_recipe("simgcd/cub.yaml").samefile(mine)
    assert find_recipe(mine) == mine


@pytest.mark.parametrize(
    ("name", "meant"),
    [("simgcd/cup", "simgcd/cub"), ("lego/cars", "legogcd/cars"), ("recipes/cms/cifar10.yaml", "cms/cifar10")],
)
def test_an_unknown_recipe_suggests_the_nearest(
    name: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NewkindsError, match=f"no recipe '{name}'.* Did you mean '{meant}'"):
        find_recipe(name)


def test_the_command_line_knows_the_names(run_cli: Any, tmp_path: Path) -> None:
    status, out, _ = run_cli("list", "recipes")
    assert status == 0
    assert all(name in out for name in recipe_names())
    arguments = ("train", "--out", tmp_path / "run", "--data-root", tmp_path)
    status, _, err = run_cli(*arguments, "--recipe", "simgcd/cup")
    assert (status, "Did you mean 'simgcd/cub'" in err) == (1, True)
    status, _, err = run_cli(*arguments, "--recipe", "simgcd/cub", "--organizer", "cpf", "--backbone", "tiny")
    assert (status, "CUB-200-2011 is not in" in err) == (1, True)  # all but the images was there


def test_another_method_on_the_same_data_leaves_the_methods_settings_behind() -> None:
    config = resolve(recipe_of("simgcd", "cub"), {"method": {"name": "cms"}})
    assert (config.method["name"], config.backbone["name"]) == ("cms", "vit_base_patch16_224.dino")


def test_recipes_are_part_of_the_package() -> None:
    patterns = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"recipes/*/*.yaml"' in patterns


def test_the_page_on_reproducibility_names_every_row() -> None:
    page = (ROOT / "docs" / "reproducibility.md").read_text(encoding="utf-8")
    for method, dataset in ROWS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{method}` | [")]
        assert row.count(f"[{dataset}](../src/newkinds/recipes/{method}/{dataset}.yaml)") == 1, (method, dataset)

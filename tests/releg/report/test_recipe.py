"""The page about the trials, from made-up bounds."""

import json
from pathlib import Path
from typing import Any

import pytest

from releg.records.file_names import TRIALS
from releg.report.recipe import best_recipes, write_recipe
from tests.releg.report import synthetic


def entry(
    estimator: str, rate: float, shape: str, nll: float, steps: int = 100, bits: str = "dynamic"
) -> dict[str, Any]:
    known = {"estimator": estimator, "rate": rate, "shape": shape, "steps": steps, "binarization": bits}
    return {**known, "val/elbo": -nll, "best_step": steps, "minutes": 1.0, "commit": "c0ffee"}


ENTRIES = [
    entry("lr", 0.001, "linear", 120.0),
    entry("lr", 0.003, "cosine", 118.0),
    entry("crn", 0.001, "linear", 108.25),
    entry("crn", 0.003, "cosine", 109.0),
    entry("crn", 0.003, "linear", 102.0, 200),
]
FIXED = entry("crn", 0.003, "cosine", 100.5, 200, "fixed")


def published_run(nll: float, warmup: int = 0, net: str = "200-200", steps: int = 200) -> dict[str, Any]:
    run = synthetic.entry(net, "crn", 0, nll, steps)
    run["config"] |= {
        "model.optimizer.init_args.lr": 0.003,
        "model.lr_scheduler.class_path": "lightning_modules.schedules.CosineDecay",
        "model.lr_scheduler.init_args.warmup_steps": warmup,
        "data.binarization": "dynamic",
    }
    return run


def write(results: Path, content: str) -> Path:
    (results / "recipe").mkdir(parents=True)
    (results / TRIALS).write_text(content)
    return results


def test_the_best_recipe_of_each_estimator_is_that_of_its_best_validation_bound() -> None:
    assert best_recipes(ENTRIES[:4]) == {"lr": (0.003, "cosine"), "crn": (0.001, "linear")}


def test_the_page_has_a_table_per_length_with_the_best_bounds_in_bold(tmp_path: Path) -> None:
    other = entry("crn", 0.001, "linear", 103.0, 200)
    (path,) = write_recipe(write(tmp_path, json.dumps([*ENTRIES, other])))
    text = path.read_text()
    short, long = text.split("### 200 steps")
    assert "### 100 steps" in short
    assert "| 0.001 | linear | 120.00 | **108.25** |" in short
    assert "| 0.003 | cosine | **118.00** | 109.00 |" in short
    assert "| 0.003 | linear |  | **102.00** |" in long
    assert "Best: 0.003, cosine, for LR; 0.001, linear, for CRN; 0.003, cosine, for both by their mean." in short
    assert "Best: 0.003, linear, for CRN." in long
    assert "c0ffee" in text


def test_a_length_with_one_recipe_is_no_choice_and_has_no_table(tmp_path: Path) -> None:
    (path,) = write_recipe(write(tmp_path, json.dumps(ENTRIES)))
    assert "### 200 steps" not in path.read_text()


def test_runs_of_the_published_table_stand_beside_the_trials(tmp_path: Path) -> None:
    results = synthetic.write_results(tmp_path, [published_run(97.5)])
    (path,) = write_recipe(write(results, json.dumps(ENTRIES)))
    _, long = path.read_text().split("### 200 steps")
    assert "| 0.003 | cosine |  | **97.50** |" in long
    assert "| 0.003 | linear |  | 102.00 |" in long


def test_the_page_says_what_the_best_other_recipe_is_worth_by_length(tmp_path: Path) -> None:
    longest = [
        entry("lr", 0.003, "linear", 101.5, 300),
        entry("crn", 0.003, "linear", 98.5, 300),
        entry("lr", 0.003, "cosine", 101.75, 300),
        entry("crn", 0.01, "cosine", 98.0, 300),
        entry("crn", 0.01, "linear", 99.0, 300),
    ]
    (path,) = write_recipe(write(tmp_path, json.dumps([*ENTRIES, *longest])))
    worth = path.read_text().split("the best other recipe")[1].split("###")[0]
    assert [line for line in worth.splitlines() if line.startswith("|")][2:] == ["| 300 | -0.25 | 0.50 |"]
    other = entry("crn", 0.01, "linear", 101.0, 200)  # ENTRIES have the recipe of the budgets for CRN at this length
    write_recipe(write(tmp_path / "more", json.dumps([*ENTRIES, other, *longest])))
    assert "| 200 |  | 1.00 |\n| 300 | -0.25 | 0.50 |" in (tmp_path / "more" / "recipe.md").read_text()


def test_trials_without_the_recipe_of_the_budgets_are_not_compared_with_it(tmp_path: Path) -> None:
    (path,) = write_recipe(write(tmp_path, json.dumps(ENTRIES[:4])))
    assert "the best other recipe" not in path.read_text()


@pytest.mark.parametrize("warmup", [0, 20])
def test_a_run_on_fixed_bits_stands_below_the_published_run_of_the_same_recipe(tmp_path: Path, warmup: int) -> None:
    results = synthetic.write_results(tmp_path, [published_run(97.5, warmup)])
    content = json.dumps([*ENTRIES, FIXED | {"warmup": warmup, "best_step": 150}])
    (path,) = write_recipe(write(results, content))
    shapes, bits = path.read_text().split("## Training bits")
    rows = [line for line in bits.splitlines() if line.startswith("| 200-200 ")]
    assert rows[0].startswith("| 200-200 | CRN | redrawn at every access | 97.50 | ")
    assert rows[1] == "| 200-200 | CRN | drawn once | 100.50 | 150 | 200 |"
    assert "100.50" not in shapes
    assert ("97.50" in shapes) == (warmup == 0)


def test_a_run_on_fixed_bits_without_its_like_is_not_shown(tmp_path: Path) -> None:
    results = synthetic.write_results(tmp_path, [published_run(97.5, warmup=20)])
    (path,) = write_recipe(write(results, json.dumps([*ENTRIES, FIXED])))
    assert "Training bits" not in path.read_text()


def test_trials_of_a_warm_up_have_a_table_of_their_own_with_the_units_in_use(tmp_path: Path) -> None:
    cold = entry("crn", 0.003, "linear", 102.5) | {"architecture": "200-200-200", "warmup": 0}
    warm = cold | {"warmup": 40, "val/elbo": -101.25, "units_in_use": [200, 180, 90]}
    content = json.dumps([cold | {"units_in_use": [200, 23, 90]}, warm, *ENTRIES])
    (path,) = write_recipe(write(tmp_path, content))
    warmup, shapes = path.read_text().split("## Peak rate and shape")
    assert "| 200-200-200 | CRN | linear | 0 | 0.003 | 100 | 102.50 | 200, 23, 90 |" in warmup
    assert "| 200-200-200 | CRN | linear | 40 | 0.0018 | 100 | 101.25 | 200, 180, 90 |" in warmup
    assert "A warm-up of 40% of the steps was the best, for this net and estimator." in warmup
    assert "102.50" not in shapes
    assert "120.00" not in warmup


def test_cells_of_the_published_table_stand_beside_the_same_runs_without_a_warm_up(tmp_path: Path) -> None:
    cell = published_run(94.0, 20_000, "200-200-200", 200_000)
    results = synthetic.write_results(tmp_path, [cell, published_run(97.5)])
    without = entry("crn", 0.003, "cosine", 96.5, 200_000) | {"architecture": "200-200-200", "warmup": 0}
    other = without | {"estimator": "lr"}  # without its like
    (path,) = write_recipe(write(results, json.dumps([without, other, *ENTRIES])))
    warmup, shapes = path.read_text().split("## Peak rate and shape")
    assert "| 200-200-200 | CRN | 96.50 | 94.00 | -2.50 |\n" in warmup
    assert "The warm-up lowers the bound of 1 of these 1 cells." in warmup
    assert warmup.count("| 200-200-200 |") == 1
    assert "96.50" not in shapes


def test_the_page_says_what_the_warm_up_costs_where_it_does_not_help(tmp_path: Path) -> None:
    nets = {"200-200-200": (94.0, 96.5), "200-200": (98.0, 97.5), "32-64-128-256": (92.25, 92.0)}
    cells = [published_run(with_it, 20_000, net, 200_000) for net, (with_it, _) in nets.items()]
    without = [
        entry("crn", 0.003, "cosine", alone, 200_000) | {"architecture": net, "warmup": 0}
        for net, (_, alone) in nets.items()
    ]
    (path,) = write_recipe(write(synthetic.write_results(tmp_path, cells), json.dumps([*without, *ENTRIES])))
    words = "The warm-up lowers the bound of 1 of these 3 cells and raises that of 2 by up to 0.50 nats.\n"
    assert words in path.read_text()


def test_a_difference_that_seeds_make_too_is_said_to_be_luck(tmp_path: Path) -> None:
    cells = [published_run(98.0 + 0.1 * seed, 20_000, steps=200_000) for seed in range(3)]
    for seed, cell in enumerate(cells):
        cell["config"]["seed_everything"] = seed
    without = entry("crn", 0.003, "cosine", 98.25, 200_000) | {"architecture": "200-200", "warmup": 0}
    (path,) = write_recipe(write(synthetic.write_results(tmp_path, cells), json.dumps([without, *ENTRIES])))
    assert "| 200-200 | CRN | 98.25 | 98.00 | -0.25 |\n" in path.read_text()
    unclear = "lowers the bound of 0 of these 1 cells and changes that of 1 by no more than luck (0.28 nats: twice"
    assert unclear in path.read_text()  # 2 sqrt(2) 0.1


def test_the_best_recipe_is_compared_with_the_published_run_which_has_a_warm_up(tmp_path: Path) -> None:
    cells = [published_run(98.0 + 0.1 * seed, 20, steps=200) for seed in range(3)]
    for seed, cell in enumerate(cells):
        cell["config"]["seed_everything"] = seed
    longest = [entry("crn", 0.003, "cosine", 97.75, 200)]
    (path,) = write_recipe(write(synthetic.write_results(tmp_path, cells), json.dumps([*ENTRIES, *longest])))
    words = "Below the published runs, which have a warm-up: 0.25 nats for CRN (98.00). Less than 0.28 can be luck."
    assert words in path.read_text().split("### 200 steps")[1]


def test_the_best_recipe_for_both_is_named_where_their_own_differ(tmp_path: Path) -> None:
    (path,) = write_recipe(write(tmp_path, json.dumps([*ENTRIES, entry("lr", 0.003, "linear", 119.0)])))
    both = [entry("lr", 0.01, "linear", 118.5), entry("crn", 0.01, "linear", 108.4)]
    assert "0.001, linear, for CRN; 0.003, cosine, for both by their mean." in path.read_text()
    (path,) = write_recipe(write(tmp_path / "more", json.dumps([*ENTRIES, *both])))
    assert "0.001, linear, for CRN; 0.01, linear, for both by their mean." in path.read_text()


def test_a_published_run_without_provenance_keeps_no_page_from_being_written(tmp_path: Path) -> None:
    results = synthetic.write_results(tmp_path, [published_run(97.5) | {"provenance": []}])
    (path,) = write_recipe(write(results, json.dumps([*ENTRIES, FIXED])))
    assert "The runs were made at commit c0ffee, unknown." in path.read_text()


def test_without_trials_there_is_no_page(tmp_path: Path) -> None:
    assert write_recipe(tmp_path) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{", '[{"steps": 3}]', "[3]"])
def test_damaged_trials_are_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match=r"trials.json cannot be read \(.*\), expected"):
        write_recipe(write(tmp_path, content))

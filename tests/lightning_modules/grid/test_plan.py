"""The plan of the grid: which runs there are, and where each stands."""

from pathlib import Path

import pytest

from lightning_modules.gradient_variance import GradientVariance
from lightning_modules.grid.options import BUDGETS, budget_file
from lightning_modules.grid.plan import cells, plan, status_of
from lightning_modules.run.folder import save_config
from lightning_modules.run.identity import added
from lightning_modules.run.result import write_result
from releg.architecture import architecture_name
from tests.lightning_modules.run_states import RESULT


def test_every_budget_has_its_file_and_every_file_its_budget() -> None:
    assert sorted(path.stem for path in budget_file("quick").parent.glob("*.yaml")) == sorted(BUDGETS)


def test_what_differs_by_estimator_and_net_is_in_the_folder_beside_a_budget(tmp_path: Path) -> None:
    budget = tmp_path / "own.yaml"
    budget.with_suffix("").mkdir()
    for name, steps in (("own", 1), ("own/crn", 2), ("own/200-200", 3), ("own/200-200,crn", 4)):
        (tmp_path / f"{name}.yaml").write_text(f"trainer: {{max_steps: {steps}}}\n")
    steps_of = {(run.architecture, run.estimator): status_of(run).steps for run in plan(budget, 1, tmp_path)}
    assert [steps_of[net, name] for net in ("200-200-200", "200-200") for name in ("lr", "crn")] == [1, 2, 3, 4]


def test_the_grid_has_every_cell_of_the_papers_table_for_every_seed(tmp_path: Path) -> None:
    runs = plan(budget_file("smoke"), 2, tmp_path)
    assert len({(run.architecture, run.estimator, run.seed) for run in runs}) == len(runs) == 16
    assert [run.seed for run in runs] == [0] * 8 + [1] * 8


@pytest.mark.parametrize(
    ("only", "planned"),
    [
        (None, 8),
        (("200-200", ""), [("200-200", "crn"), ("200-200", "lr")]),  # the longer run first
        (("200", "crn"), [("200", "crn")]),  # a net that the paper lacks is trained only if it is named
    ],
)
def test_a_command_is_about_the_papers_nets_or_the_part_that_it_names(
    only: tuple[str, str] | None, planned: int | list[tuple[str, str]]
) -> None:
    assert planned in (cells(only), len(cells(only)))


@pytest.mark.parametrize("name", BUDGETS)
def test_every_budget_can_be_placed_and_measures_the_architecture_of_figure_1(name: str, tmp_path: Path) -> None:
    measured = []
    for run in plan(budget_file(name), 1, tmp_path)[1:8:2] + plan(budget_file(name), 1, tmp_path)[6:7]:
        status = status_of(run)
        assert architecture_name(status.config["model"]["layers"]) == run.architecture
        assert (status.result, status.steps_done) == (None, 0)
        callbacks = added(status.config["trainer"].get("callbacks"))
        if callbacks:
            measured.append((run.architecture, run.estimator))
            assert all(each["class_path"].endswith(GradientVariance.__name__) for each in callbacks)
            assert all(step < status.steps for each in callbacks for step in each["init_args"].get("steps") or [])
    assert sorted(measured) == [("32-64-128-256", "crn"), ("32-64-128-256", "lr")]


def test_a_finished_run_is_recognised_by_its_config_and_not_by_its_folder(tmp_path: Path) -> None:
    run = plan(budget_file("smoke"), 1, tmp_path)[0]
    status = status_of(run)
    save_config(status.folder, {**status.config, "results_dir": "elsewhere"})
    write_result(status.folder, RESULT)
    assert status_of(run).result == RESULT
    longer = status_of(plan(budget_file("quick"), 1, tmp_path)[0])
    assert longer.result is None
    assert longer.folder == status.folder.with_name("seed0-2")

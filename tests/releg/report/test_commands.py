"""The commands that results/README.md names."""

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.grid.options import parse_options
from releg.records.names import ARCHITECTURES, BUDGETS, ESTIMATORS
from releg.report.commands import command_words, commands_for
from releg.report.runs import read_manifest
from tests.releg.report.synthetic import entry, write_results

STEPS = BUDGETS["converged"]
START = "bash reproduce.sh --budget converged"
GRID = [entry(architecture, name, 0, 100.0, STEPS) for architecture in ARCHITECTURES for name in ESTIMATORS]
MORE_SEEDS = [entry("200-200", "crn", seed, 100.0, STEPS) for seed in (1, 2)]
FASHION = {"data.class_path": "lightning_modules.binarized_fashion_mnist.BinarizedFashionMNIST"}


def commands(folder: Path, runs: list[dict[str, Any]]) -> list[str]:
    return commands_for(read_manifest(write_results(folder, runs)).runs)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (GRID, [START]),
        ([*GRID, *MORE_SEEDS], [START, f"{START} --only 200-200,crn --seeds 3"]),
        ([run for run in GRID for _ in range(2)], [START]),
        (GRID[:1] + MORE_SEEDS, [f"{START} --only 200-200,lr", f"{START} --only 200-200,crn --seeds 3"]),
        (
            [
                entry(architecture, name, seed, 1.0, STEPS)
                for architecture in ARCHITECTURES
                for name in ESTIMATORS
                for seed in (0, 1)
            ],
            [f"{START} --seeds 2"],
        ),
        ([entry("200-200", "lr", 0, 1.0, 123)], []),
        ([entry("50-10", "lr", 0, 1.0, STEPS)], []),
        ([GRID[0] | {"config": GRID[0]["config"] | FASHION}], []),
    ],
    ids=["grid", "more seeds", "twice", "some cells", "two seeds", "own steps", "own net", "own data"],
)
def test_the_commands_train_the_cells_that_are_there(
    tmp_path: Path, runs: list[dict[str, Any]], expected: list[str]
) -> None:
    assert commands(tmp_path, runs) == expected
    for command in expected:
        parse_options(command.split()[2:])  # reproduce.sh has these options


@pytest.mark.parametrize(
    ("command", "seconds", "words"),
    [
        ("bash reproduce.sh --jobs 2", 60.0, "`bash reproduce.sh --jobs 2`"),
        (
            "bash reproduce.sh --jobs 2",
            None,
            f"several, the last one `bash reproduce.sh --jobs 2`; to train the same cells: `{START}`",
        ),
        (None, None, f"several; to train the same cells: `{START}`"),
    ],
)
def test_a_command_that_made_only_some_of_the_runs_is_not_named_alone(
    tmp_path: Path, command: str | None, seconds: float | None, words: str
) -> None:
    path = write_results(tmp_path, GRID) / "runs.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": command, "seconds": seconds}))
    assert command_words(read_manifest(tmp_path)) == words

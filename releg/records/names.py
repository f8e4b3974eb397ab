"""The names in files, tables and figures: the paper's estimators and architectures, schedules, budgets, data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class PaperEstimator(NamedTuple):
    """One of the two estimators that the paper compares."""

    label: str  # in tables and figures
    config: str  # its config file, and its name in grad_variance.csv
    colour: str


# By their names in files. The colours differ in darkness too, for readers who print in grey.
ESTIMATORS = {
    "lr": PaperEstimator("LR", "likelihood_ratio", "#d1700f"),
    "crn": PaperEstimator("CRN", "common_random_numbers", "#0b3c8c"),
}

ARCHITECTURES = ("200-200", "200-200-200", "200-200-200-200", "32-64-128-256")  # Table 1, in the paper's order
FIGURE1_ARCHITECTURE = "32-64-128-256"
FIGURE1_IMAGES, FIGURE1_SAMPLES = 50_000, 1_000  # on which the paper measures gradient variances, and of each

AUTHORS_STEPS = 2_000_000  # of the authors' later code
BUDGETS = ("smoke", "quick", "standard", "converged", "paper")  # files in lightning_modules/configs/budget/
DEFAULT_BUDGET = "quick"
PUBLISHED_BUDGET = "standard"  # its table is results/table1.md; other budgets have their own folder in results/
LONGEST_BUDGETS = ("converged", "paper")  # whose bounds the published table shows as those at the end of training

PAPER_DATA = "MNIST"


def schedule_name(class_path: str) -> str:
    """lightning_modules.schedules.HoldThenLinearDecay -> hold_then_linear; no class is a constant rate."""
    return snake_case(class_path.rsplit(".", 1)[-1]).removesuffix("_decay") or "constant"


def label_of(estimator: str, label: str = "", unbiased: bool = True, objective: str = "elbo") -> str:
    """What tables call an estimator, with a warning if it is biased or climbs another bound.

    The paper's two have their labels here; the label of another one is an attribute of its class.
    """
    label = ESTIMATORS[estimator].label if estimator in ESTIMATORS else label or estimator
    if not unbiased:
        return f"{label} (biased)"
    return label if objective == "elbo" else f"{label} (climbs the multi-sample bound)"


def longer_folders(results: Path) -> list[Path]:
    """Where the longer budgets have their runs, beside the published table's; they need not be there."""
    return [results / budget for budget in LONGEST_BUDGETS]


def data_name(class_path: str) -> str:
    """lightning_modules.binarized_mnist.BinarizedMNIST -> MNIST."""
    return class_path.rsplit(".", 1)[-1].removeprefix("Binarized")


def snake_case(name: str) -> str:
    """CommonRandomNumbers -> common_random_numbers."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()

"""The rules of the race: which rates and seeds every estimator has, and which of its rates is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

RATES = (0.001, 0.003, 0.01)  # peaks
CHOOSING_SEED, SEEDS = 0, (1, 2, 3)  # of the runs that choose a rate, and of those at the chosen one
NETS = ("200-200", "32-64-128-256")  # the second for LR and those that end lowest on the first
FURTHER = 8
LR = "likelihood_ratio"

Run = Mapping[str, Any]


def chosen_rate(runs: Iterable[Run]) -> float | None:
    """The rate with the best validation bound, of one estimator on one net; None before all have been tried."""
    bounds = {run["rate"]: run["val/elbo"] for run in runs if run["seed"] == CHOOSING_SEED}
    return max(bounds, key=lambda rate: float(bounds[rate])) if bounds.keys() >= {*RATES} else None


def runs_of(runs: Iterable[Run], net: str, estimator: str) -> list[Run]:
    """Those of one estimator on one net."""
    return [run for run in runs if (run["architecture"], run["estimator"]) == (net, estimator)]


def seeds_of(runs: Iterable[Run]) -> list[Run]:
    """The runs of one estimator on one net that count: other seeds at the chosen rate."""
    runs = list(runs)
    rate = chosen_rate(runs)
    return [run for run in runs if run["rate"] == rate and run["seed"] in SEEDS]

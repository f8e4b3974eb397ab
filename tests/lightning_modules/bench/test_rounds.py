"""The arithmetic of the benchmark, on numbers that are known."""

import time

import pytest
import torch
from torch import Tensor

from lightning_modules.bench.rounds import Schedule, Turn, interleave, summary
from lightning_modules.bench.scaling import exponents, slope
from lightning_modules.bench.steps import OWN
from lightning_modules.sbn_module import SBNModule
from lightning_modules.training_step import TrainingStep


class Recorder(TrainingStep):
    """A step of known duration that writes down when it was called."""

    def __init__(self, name: str, seconds: float, log: list[tuple[str, int]]) -> None:
        super().__init__(SBNModule([2], OWN["crn_batched"](), 3), seed=0)
        self.name, self.seconds, self.log = name, seconds, log

    def restore(self) -> None:
        self.log.append((self.name, 0))

    def __call__(self, x: Tensor) -> None:
        self.log.append((self.name, int(x[0, 0])))
        time.sleep(self.seconds)


def test_every_estimator_takes_a_turn_in_each_round_on_the_same_batches_and_slow_ones_in_few() -> None:
    log: list[tuple[str, int]] = []
    steps = {name: Recorder(name, s, log) for name, s in (("lr", 0.0), ("fast", 0.0), ("slow", 0.13))}
    batches = [torch.full((10, 1), float(k)) for k in range(1, 8)]
    rounds = interleave(steps, batches, Schedule(rounds=4, steps=2, slow_rounds=2), seed=0)
    assert [sorted(each) for each in rounds] == [["fast", "lr", "slow"], ["fast", "lr"]] * 2
    first_restore = log.index(("lr", 0))
    after_warm_up = log[min(first_restore, log.index(("fast", 0)), log.index(("slow", 0))) :]
    seen = {name: [k for who, k in after_warm_up if who == name] for name in steps}
    assert seen["lr"] == seen["fast"] == [0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 1, 2, 0, 3, 4, 5]
    assert seen["slow"] == [0, 1, 0, 7]


def test_ratios_are_taken_within_rounds_so_that_a_slow_minute_does_not_count() -> None:
    speed = [1.0, 1.0, 10.0, 1.0, 7.0]  # of the machine
    rounds = [{"lr": Turn(0.01 * s, {}), "crn_cpu": Turn(0.015 * s, {"estimate": 0.01 * s})} for s in speed]
    del rounds[1]["crn_cpu"]
    columns = summary(rounds, "crn_cpu")
    assert columns["ratio_to_lr"] == 1.5
    assert columns["ratio_quartiles"] == [1.5, 1.5]
    assert columns["rounds"] == 4
    assert columns["ms_per_step"] == 60.0
    assert summary(rounds, "lr")["ratio_to_lr"] == 1.0


def test_a_floor_that_is_slow_itself_is_compared_in_the_rounds_that_it_takes_part_in() -> None:
    rounds = [{"lr": Turn(0.4, {})}, {"lr": Turn(0.6, {}), "floor_lr": Turn(0.3, {})}]
    columns = summary(rounds, "lr")
    assert (columns["ratio_to_floor"], columns["floor_ms"]) == (2.0, 300.0)
    assert "ratio_to_floor" not in summary(rounds[:1], "lr")


def test_fitted_exponent_is_that_of_a_power_law() -> None:
    assert slope([50, 100, 800], [7 * size**1.25 for size in (50, 100, 800)]) == pytest.approx(1.25, abs=1e-3)


def test_exponents_are_fitted_for_each_study_and_estimator() -> None:
    sizes = [("units", n, 2) for n in (50, 100, 200)] + [("depth", 200, n) for n in (1, 2, 4)]
    powers = {("units", "lr"): 0.5, ("units", "crn_cpu"): 0.75, ("depth", "lr"): 1.0, ("depth", "crn_cpu"): 0.9}
    rows: list[dict[str, object]] = []
    for study, units, depth in sizes:
        n = {"units": units, "depth": depth}[study]
        for name in ("lr", "crn_cpu"):
            ms, lr = n ** powers[study, name], n ** powers[study, "lr"]
            row = {"study": study, "units": units, "depth": depth, "estimator": name}
            rows.append(row | {"ms_per_step": ms, "ratio_to_lr": ms / lr})
    fitted = {(row["study"], row["estimator"]): row for row in exponents(rows)}
    for key, power in powers.items():
        assert fitted[key]["exponent"] == pytest.approx(power, abs=1e-3)
        assert fitted[key]["exponent_of_ratio"] == pytest.approx(power - powers[key[0], "lr"], abs=1e-3)
    assert fitted["units", "lr"]["from"] == 50
    assert fitted["depth", "crn_cpu"]["to"] == 4


def test_one_size_has_no_exponent() -> None:
    row: dict[str, object] = {"study": "units", "units": 5, "estimator": "lr", "ms_per_step": 1.0, "ratio_to_lr": 1.0}
    assert exponents([row]) == []


def test_of_five_sizes_the_three_largest_are_also_fitted_alone() -> None:
    """Fixed costs bend the curve: 1000 + n grows with exponent 1 only in the end."""
    rows: list[dict[str, object]] = [
        {"study": "units", "units": n, "estimator": "lr", "ms_per_step": 1e3 + n, "ratio_to_lr": 1.0}
        for n in (1, 10, 10**6, 10**7, 10**8)
    ]
    everywhere, large = exponents(rows)
    assert (everywhere["from"], large["from"]) == (1, 10**6)
    assert large["exponent"] == pytest.approx(1, abs=1e-3)

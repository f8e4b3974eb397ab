"""Which runs the race plans, and in which order."""

from pathlib import Path
from typing import Any

from lightning_modules.grid.plan import status_of
from lightning_modules.run.identity import differences, settings_of
from lightning_modules.shipped_estimators import shipped_names
from lightning_modules.studies.race import FIRST, STEPS, Racer, numbers, planned
from releg.records.file_names import METRICS
from releg.records.race import LR, NETS, RATES, SEEDS
from tests.lightning_modules.run_states import leave_finished


def end(racer: Racer) -> float:
    """Better for later names, and best at 0.003."""
    return shipped_names().index(racer.estimator) - abs(racer.rate - 0.003) * 100


def trained(racers: list[Racer]) -> list[dict[str, Any]]:
    return [racer._asdict() | {"val/elbo": end(racer)} for racer in racers]


def stages() -> list[list[Racer]]:
    """What is planned after everything before it has been trained."""
    found: list[list[Racer]] = []
    while True:
        before = [racer for stage in found for racer in stage]
        new = [racer for racer in planned(trained(before)) if racer not in before]
        if not new:
            return found
        found.append(new)


def test_rates_come_before_seeds_and_the_best_estimators_of_the_first_net_run_on_the_second() -> None:
    found = stages()
    assert [(stage[0].architecture, {racer.seed for racer in stage}) for stage in found] == [
        (net, seeds) for net in (NETS[0], NETS[0], NETS[1]) for seeds in ({0}, {*SEEDS})
    ]
    everyone = {racer.estimator for stage in found[:4] for racer in stage}
    assert sorted(everyone) == shipped_names()
    assert [racer.estimator for racer in found[0]] == [*FIRST] * len(RATES)
    assert {racer.rate for stage in found[1::2] for racer in stage} == {0.003}
    assert {racer.estimator for racer in found[4]} == {LR, *[n for n in shipped_names() if n != LR][-8:]}
    runs = [racer for stage in found for racer in stage]
    assert len({*runs}) == len(runs) == 6 * (len(shipped_names()) + 9)


def test_nothing_is_planned_beyond_the_first_stage_that_is_unfinished() -> None:
    first = stages()[0]
    assert [*planned(trained(first[1:]))] == first


def test_all_runs_of_the_race_differ_in_estimator_rate_seed_and_net_alone(tmp_path: Path) -> None:
    one, other = (
        settings_of(status_of(Racer(*run).run(tmp_path)).config)
        for run in ((NETS[0], "sibling_rodeo", 0.001, 0), (NETS[1], "likelihood_ratio", 0.01, 3))
    )
    changed = differences(one, other)
    assert [changed.pop(f"model.layers.{k}") for k in range(4)] == [(200, 256), (200, 128), (None, 64), (None, 32)]
    assert changed.pop("model.optimizer.init_args.lr") == (0.001, 0.01)
    assert changed.pop("seed_everything") == (0, 3)
    assert all(name.startswith("model.estimator.") for name in changed), changed
    assert (one["trainer.max_steps"], one["model.lr_scheduler.init_args.warmup_steps"]) == (STEPS, STEPS // 10)
    assert one["model.lr_scheduler.class_path"].endswith("HoldThenLinearDecay")


def test_the_numbers_of_a_run_are_its_bounds_its_curve_and_what_its_estimator_is(tmp_path: Path) -> None:
    run = Racer(NETS[0], "reinmax", 0.01, 2).run(tmp_path)
    leave_finished(status_of(run))
    rows = ["step,seconds,metric,value", "100,1.0,train/elbo,-150.0", "500,4.0,val/elbo,-120.0\n"]
    (status_of(run).folder / METRICS).write_text("\n".join(rows))
    found = numbers(status_of(run))
    assert (found["label"], found["unbiased"], found["steps"]) == ("ReinMax", False, STEPS)
    assert (found["curve"], found["val/elbo"], found["test/elbo"]) == ([[500, 4.0, -120.0]], -101.0, -100.0)

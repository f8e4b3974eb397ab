import logging

import pytest
import torch
import yaml
from torch import nn

from lightning_modules import CONFIGS, schedules
from lightning_modules.schedules import CosineDecay, DecayToZero, HoldThenLinearDecay, LinearDecay
from releg.records.names import schedule_name


def test_reports_name_every_shipped_schedule_by_its_config_file_and_class() -> None:
    shipped = {path.stem: yaml.safe_load(path.read_text()) for path in (CONFIGS / "schedule").glob("*.yaml")}
    paths = {name: config["model"]["lr_scheduler"]["class_path"] for name, config in shipped.items()}
    assert {name: schedule_name(path) for name, path in paths.items()} == {name: name for name in shipped}
    assert schedule_name("") == "constant"
    classes = [getattr(schedules, path.removeprefix(f"{schedules.__name__}.")) for path in paths.values()]
    assert all(issubclass(each, DecayToZero) for each in classes)


def rates(kind: type[DecayToZero], peak: float, steps: int, warmup_steps: int = 0) -> list[float]:
    """The rate of each step and, last, after all of them."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = kind(optimizer, warmup_steps=warmup_steps)
    schedule.end_with(steps)
    seen = []
    for _ in range(steps):
        seen.append(float(schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    return [*seen, float(schedule.get_last_lr()[0])]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (LinearDecay, [0.4, 0.3, 0.2, 0.1, 0.0]),
        (CosineDecay, [0.4, 0.2 + 0.2 * 0.5**0.5, 0.2, 0.2 - 0.2 * 0.5**0.5, 0.0]),
        (HoldThenLinearDecay, [0.4, 0.4, 0.4, 0.2, 0.0]),
    ],
)
def test_the_rate_falls_from_its_peak_to_zero_over_all_steps(kind: type[DecayToZero], expected: list[float]) -> None:
    assert rates(kind, 0.4, 4) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("kind", [LinearDecay, CosineDecay, HoldThenLinearDecay])
def test_a_warm_up_lets_the_rate_rise_in_a_straight_line_and_changes_nothing_after_it(kind: type[DecayToZero]) -> None:
    cold, warm = rates(kind, 0.4, 20), rates(kind, 0.4, 20, warmup_steps=4)
    assert [ours / theirs for ours, theirs in zip(warm[:4], cold[:4], strict=True)] == pytest.approx(
        [0.25, 0.5, 0.75, 1]
    )
    assert warm[3:] == cold[3:]


def test_a_restored_schedule_goes_on_with_the_very_rates_of_an_uninterrupted_one() -> None:
    whole = rates(CosineDecay, 0.003, 1000, warmup_steps=700)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.003)
    first = CosineDecay(optimizer, total_steps=1000, warmup_steps=700)
    for _ in range(600):
        optimizer.step()
        first.step()
    again = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.003)
    second = CosineDecay(again)
    again.load_state_dict(optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    for step in range(600, 1000):
        assert second.get_last_lr()[0] == whole[step]
        again.step()
        second.step()


@pytest.mark.parametrize(("warmup_steps", "is_told"), [(9, False), (10, True), (20, True)])
def test_a_warm_up_that_takes_the_whole_training_is_told(
    warmup_steps: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    schedule = LinearDecay(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), warmup_steps=warmup_steps)
    schedule.end_with(10)
    assert ("training 10, so the learning rate never comes near its peak" in caplog.text) == is_told


def test_a_number_of_steps_that_the_user_gave_is_kept_and_one_without_sense_refused() -> None:
    schedule = LinearDecay(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), total_steps=10)
    schedule.end_with(500)
    assert schedule.total_steps == 10
    with pytest.raises(ValueError, match="total_steps is 0, expected at least 1"):
        LinearDecay(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), total_steps=0)
    with pytest.raises(ValueError, match="warmup_steps is -1, expected at least 0; 0 is no warm-up"):
        LinearDecay(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), warmup_steps=-1)

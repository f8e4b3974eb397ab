import pytest
import torch
import yaml
from torch import nn

from lightning_modules import CONFIGS, schedules
from lightning_modules.schedules import CosineDecay, DecayToZero, HoldThenLinearDecay, LinearDecay
from releg.report.names import CONSTANT_RATE, SCHEDULES


def test_reports_name_every_shipped_schedule_by_its_config_file_and_class() -> None:
    shipped = {path.stem: yaml.safe_load(path.read_text()) for path in (CONFIGS / "schedule").glob("*.yaml")}
    paths = {name: config["model"]["lr_scheduler"]["class_path"] for name, config in shipped.items()}
    named = {name: known.class_name for name, known in SCHEDULES.items() if name != CONSTANT_RATE}
    assert paths == {name: f"{schedules.__name__}.{class_name}" for name, class_name in named.items()}
    assert all(issubclass(getattr(schedules, class_name), DecayToZero) for class_name in named.values())


def rates(kind: type[DecayToZero], peak: float, steps: int) -> list[float]:
    """The rate of each step and, last, after all of them."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = kind(optimizer)
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


def test_a_restored_schedule_goes_on_with_the_very_rates_of_an_uninterrupted_one() -> None:
    whole = rates(CosineDecay, 0.003, 1000)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.003)
    first = CosineDecay(optimizer, total_steps=1000)
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


def test_a_number_of_steps_that_the_user_gave_is_kept() -> None:
    schedule = LinearDecay(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), total_steps=10)
    schedule.end_with(500)
    assert schedule.total_steps == 10
    with pytest.raises(ValueError, match="total_steps is 0, expected at least 1"):
        LinearDecay(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), total_steps=0)

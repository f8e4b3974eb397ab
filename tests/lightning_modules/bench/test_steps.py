"""What is timed is what it is called: real training steps, of the same estimate where it should be the same."""

import pytest
import pytorch_lightning as pl
import torch

from lightning_modules.bench import steps
from lightning_modules.bench.steps import ALL, OWN, Problem, available, make_step
from lightning_modules.sbn_module import SBNModule
from lightning_modules.training_step import module_for
from releg import exact
from tests.releg.helpers import largest_z, random_model, random_x

DATA_SIZE = 784


def small_problem() -> Problem:
    weights = random_model(DATA_SIZE, [4, 3], scale=0.1, dtype=torch.float32).state_dict()
    return Problem((4, 3), weights, seed=5)


@pytest.mark.parametrize("name", ALL)
def test_a_step_trains_every_parameter_and_restore_takes_the_model_back(name: str) -> None:
    if name not in available():
        pytest.skip(f"{name} is not installed")
    problem = small_problem()
    step = make_step(name, problem)
    before = {key: value.clone() for key, value in step.module.named_parameters()}
    for seed, rows in enumerate((20, 1, 20)):
        step(random_x(rows, DATA_SIZE, seed, torch.float32))
    assert [key for key, value in step.module.named_parameters() if torch.equal(value, before[key])] == []
    step.restore()
    for key, value in step.module.model.state_dict().items():
        assert torch.equal(value, problem.weights[key])


def test_steps_of_all_engines_take_the_same_weights_to_the_same_weights() -> None:
    ends = []
    for name in [name for name in available() if name.startswith("crn_")]:
        step = make_step(name, small_problem())
        step(random_x(20, DATA_SIZE, dtype=torch.float32))
        ends.append(torch.cat([value.flatten() for value in step.module.model.parameters()]))
    assert len(ends) >= 2
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=0, atol=1e-4)


def test_a_step_is_that_of_the_training_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise gives the same weights as SBNModule.training_step, backward and its optimiser."""
    step = make_step("lr", small_problem())
    module = module_for((4, 3), OWN["lr"](), small_problem().weights, seed=5)
    x = random_x(20, DATA_SIZE, dtype=torch.float32)
    optimizer, generator = module.build_optimizer(), torch.Generator()
    generator.set_state(step.generator.get_state())
    noise = module.estimator.draw_noise(module.model, x, generator)
    monkeypatch.setattr(module.estimator, "draw_noise", lambda *_: noise)
    module.trainer = pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    module.training_step(x, 0).backward()
    optimizer.step()
    step(x)
    for ours, theirs in zip(step.module.parameters(), module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_expected_gradient_of_pyro_is_the_enumerated_gradient_as_ours_is() -> None:
    pytest.importorskip("pyro")
    from lightning_modules.bench.pyro_step import PyroStep

    model, x = random_model(3, [2, 2], seed=11, dtype=torch.float32), random_x(1, 3, seed=11, dtype=torch.float32)
    module = SBNModule([2, 2], OWN["lr"](), 3)
    module.model = model
    module.estimator.attach(model)
    step, rows, repeats = PyroStep(module, seed=7), 200, 150
    names = [name for name, _ in model.named_parameters()]
    draws: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for _ in range(repeats):
        step.optimizer.zero_grad()
        step.backward(x.expand(rows, -1))
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            draws[name].append(-parameter.grad / rows)
    scores = []
    for name, expected in exact.elbo_gradient(model, x).items():
        answers = torch.stack(draws[name]).double()
        error = answers.mean(0) - expected
        scores.append((error / (answers.std(0) / repeats**0.5 + 1e-5 * (1 + expected.abs()))).flatten())
    every = torch.cat(scores)
    assert every.abs().max() < largest_z(len(every)), every


def test_without_pyro_and_numba_their_rows_are_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "find_spec", lambda name: None)
    monkeypatch.setattr(steps, "has_numba", lambda: False)
    assert available() == ["lr", "crn_batched", "crn_dense"]
    assert steps.missing()["pyro_lr"] == (
        "pyro_lr is left out, since Pyro is not installed; pip install -e '.[bench]'."
    )

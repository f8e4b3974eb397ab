"""The steps in JAX are ours: at the same weights and noise the same gradient, and the same update."""

import pytest
import torch
from torch import Tensor

from lightning_modules.bench.steps import CONFIGS
from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import read_estimator
from tests.releg.helpers import random_model, random_x

jax = pytest.importorskip("jax")

from lightning_modules.bench import jax_steps  # noqa: E402


@pytest.fixture(autouse=True)
def float64() -> object:
    with jax.enable_x64(True):
        yield


def module_of(name: str) -> SBNModule:
    """At random weights in float64, with baselines and averages that are not zero."""
    model = random_model(12, [6, 5, 4], 0.7, 3)
    module = SBNModule(model.layers, read_estimator(CONFIGS[name]), 12).double()
    module.model.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(5)
    for value in module.estimator.state_dict().values():
        value.copy_(torch.randn(value.shape, generator=generator).to(value))
    return module


def gradient_of(module: SBNModule) -> dict[str, Tensor]:
    return {key: value.grad for key, value in module.named_parameters() if value.grad is not None}


def average_of(module: SBNModule) -> Tensor:
    return module.estimator.state_dict().get("baselines.1.average", torch.zeros(3))


def assert_same(theirs: object, ours: object) -> None:
    assert jax.tree.structure(theirs) == jax.tree.structure(ours)
    for one, other in zip(jax.tree.leaves(theirs), jax.tree.leaves(ours), strict=True):
        assert abs(one - other).max() < 1e-10 * (1 + abs(other).max())


@pytest.mark.parametrize("name", jax_steps.LOSSES)
def test_the_gradient_in_jax_is_ours(name: str) -> None:
    module, x = module_of(name), random_x(7, 12, 2)
    noise = module.estimator.draw_noise(module.model, x, torch.Generator().manual_seed(2))
    params = jax_steps.params_of(module.state_dict())
    numbers = [jax.numpy.asarray(each.numpy()) for each in (average_of(module), module.model.mean, x)]
    gradient = jax.jit(jax.grad(jax_steps.LOSSES[name], has_aux=True))
    grads, averages = gradient(params, *numbers, [u.numpy() for u in noise])
    module.loss_of(x, noise)[0].backward()
    assert_same(grads, jax_steps.params_of(gradient_of(module)))
    assert_same(averages, average_of(module).numpy())


def test_the_update_in_jax_is_ours() -> None:
    module = module_of("lr")
    optimizer, generator = module.build_optimizer(), torch.Generator().manual_seed(4)
    params = jax_steps.params_of(module.state_dict())
    squares = jax.tree.map(jax.numpy.zeros_like, params)
    for _ in range(3):
        for parameter in module.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        grads = jax_steps.params_of(gradient_of(module))
        params, squares = jax_steps.update(params, squares, grads)
        optimizer.step()
        assert_same(params, jax_steps.params_of(module.state_dict()))


def test_a_step_in_jax_trains_and_a_scan_takes_the_same_steps() -> None:
    module = module_of("lr")
    step, start = jax_steps.make_step(jax_steps.lr_loss, module.model.mean), jax_steps.start(module.state_dict(), 0)
    xs = jax.numpy.asarray(torch.stack([random_x(20, 12, seed) for seed in range(3)]).numpy())
    state, one = start, jax.jit(step)
    for x in xs:
        state, _ = one(state, x)
    assert_same(jax.jit(lambda state, xs: jax.lax.scan(step, state, xs))(start, xs)[0].params, state.params)
    moved = [not bool((a == b).any()) for a, b in zip(*map(jax.tree.leaves, (start.params, state.params)), strict=True)]
    assert all(moved)

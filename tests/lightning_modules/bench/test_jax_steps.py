"""The steps in JAX do what ours do: same weights and noise, same gradient, same update."""

import pytest
import torch
from torch import Tensor

from lightning_modules.bench.steps import OWN
from lightning_modules.sbn_module import SBNModule
from tests.releg.helpers import random_model, random_x

jax = pytest.importorskip("jax")

from lightning_modules.bench import jax_steps  # noqa: E402

ESTIMATORS = {"lr": "lr", "crn": "crn_dense"}


def module_of(name: str) -> SBNModule:
    """At random weights, with baselines and averages that are not zero, in float64."""
    model = random_model(12, [6, 5, 4], 0.7, 3)
    module = SBNModule(model.layers, OWN[ESTIMATORS[name]](), 12, weight_decay=jax_steps.WEIGHT_DECAY).double()
    module.model.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(5)
    for value in module.estimator.state_dict().values():
        value.copy_(torch.randn(value.shape, generator=generator).to(value))
    return module


def averages_of(module: SBNModule) -> Tensor:
    return module.estimator.state_dict().get("baselines.1.average", torch.zeros(3))


@pytest.mark.parametrize("name", jax_steps.LOSSES)
def test_the_gradient_in_jax_is_ours(name: str) -> None:
    module, x = module_of(name), random_x(7, 12, 2)
    noise = module.estimator.draw_noise(module.model, x, torch.Generator().manual_seed(2))
    with jax.enable_x64(True):
        params = jax_steps.params_of(module.state_dict())
        numbers = [jax.numpy.asarray(each.numpy()) for each in (averages_of(module), module.model.mean, x)]
        grads, averages = jax.grad(jax_steps.LOSSES[name], has_aux=True)(params, *numbers, [u.numpy() for u in noise])
        expected = {key: value for key, value in module.named_parameters()}
        module.loss_of(x, noise)[0].backward()
        ours = jax_steps.params_of({key: value.grad for key, value in expected.items()})
        assert jax.tree.structure(grads) == jax.tree.structure(ours)
        for theirs, mine in zip(jax.tree.leaves(grads), jax.tree.leaves(ours), strict=True):
            assert abs(theirs - mine).max() < 1e-10 * (1 + abs(mine).max())
        assert abs(averages - averages_of(module).numpy()).max() < 1e-10

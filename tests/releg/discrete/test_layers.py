"""Layers: unbiased by enumeration, equal to graphs of nodes, to Algorithm 1 as printed and to sigmoid belief nets."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from releg.discrete import DiscreteModel, Layer, Values, algorithm1, gradient
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.functional import common_random_numbers
from releg.sbn import SigmoidBeliefNet
from tests.releg.discrete.choices import change_weights, choice_cells, plain_chances
from tests.releg.discrete.layered import DIAMOND, Graph, Layered, Sizes, exact_gradient, expected_gradient
from tests.releg.helpers import random_model, random_x

BERNOULLI: Sizes = {"a": (2, 2), "b": (2, 2), "c": (1, 2), "d": (2, 2)}
MIXED: Sizes = {"a": (2, 2), "b": (1, 3), "c": (2, 2), "d": (1, 3)}
CATEGORICAL: Sizes = {"a": (2, 3), "b": (1, 3), "c": (1, 3), "d": (1, 3)}


@st.composite
def layered_graphs(draw: st.DrawFn, units: int = 4, states: int = 4) -> tuple[Graph, Sizes]:
    names = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    graph = {name: tuple(p for p in names[:i] if draw(st.booleans())) for i, name in enumerate(names)}
    return graph, {name: (draw(st.integers(1, units)), draw(st.integers(2, states))) for name in names}


# --- unbiased -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [BERNOULLI, MIXED, CATEGORICAL], ids=["bernoulli", "mixed", "categorical"])
def test_expected_estimate_is_the_exact_gradient_on_a_layered_diamond(sizes: Sizes) -> None:
    layered = Layered.random(DIAMOND, sizes, seed=1)
    found, exact = expected_gradient(layered, layered.model()), exact_gradient(layered)
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("keeps", ["descendants", "grandchildren"])
def test_the_enumeration_notices_layers_that_were_not_simulated_after_a_flip(keeps: str) -> None:
    layered = Layered.random(DIAMOND, BERNOULLI, seed=1)
    model = layered.model()
    for name, found in model.descendants.items():
        model.descendants[name] = tuple(other for other in found if keeps == "grandchildren" and name in other.parents)
    differences = zip(expected_gradient(layered, model), exact_gradient(layered), strict=True)
    assert max((one - other).abs().max() for one, other in differences) > 1e-2


@settings(max_examples=20)
@given(layered_graphs(units=1, states=3), st.integers(0, 1000))
def test_expected_estimate_is_the_exact_gradient_on_any_graph(case: tuple[Graph, Sizes], seed: int) -> None:
    layered = Layered.random(*case, seed=seed)
    found, exact = expected_gradient(layered, layered.model()), exact_gradient(layered)
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("flips", [1, 2])
@pytest.mark.parametrize("sizes", [BERNOULLI, MIXED, CATEGORICAL], ids=["bernoulli", "mixed", "categorical"])
def test_a_few_flips_chosen_at_random_give_the_gradient_of_all_on_average(sizes: Sizes, flips: int) -> None:
    """Row by row, over all the ways to choose: so they are unbiased wherever all flips are."""
    layered = Layered.random(DIAMOND, sizes, seed=2)
    model, x = layered.model(), layered.input(40)
    noise = model.draw_noise(x, torch.Generator().manual_seed(3))
    every = gradient(model, layered.f, x, noise)
    cells = {}
    for name in DIAMOND:
        weights = change_weights(every.sample.logits[name].detach(), every.sample.z[name])
        cells[name] = choice_cells(plain_chances(weights, flips))
    means = {name: torch.zeros_like(grads) for name, grads in every.logit_grads.items()}
    for cell in range(max(len(widths.T) for _, widths in cells.values())):
        taken = {name: min(cell, len(widths.T) - 1) for name, (_, widths) in cells.items()}
        choice = {name: cells[name][0][:, taken[name]].clamp(max=1 - 2**-53) for name in DIAMOND}
        few = {name: partial(common_random_numbers, flips=flips, choice=choice[name]) for name in DIAMOND}
        part = gradient(model, layered.f, x, noise, estimator=few)
        for name, mean in means.items():
            width = cells[name][1][:, cell] if cell == taken[name] else torch.zeros(len(x), dtype=torch.float64)
            mean += part.logit_grads[name] * width.view(-1, *[1] * (mean.dim() - 1))
    torch.testing.assert_close(means, every.logit_grads, rtol=1e-9, atol=1e-11)


def test_as_many_flips_as_there_are_give_all_of_them() -> None:
    layered = Layered.random(DIAMOND, MIXED, seed=3)
    model, x = layered.model(), layered.input(30)
    noise = model.draw_noise(x)
    one, other = gradient(model, layered.f, x, noise), gradient(model, layered.f, x, noise, flips=2)
    torch.testing.assert_close(one.logit_grads, other.logit_grads, rtol=0, atol=0)


def test_flips_of_a_saturated_layer_are_chosen_among_the_units_that_can_change() -> None:
    logits = torch.tensor([[-800.0, 800.0, 0.1, -0.1, 800.0]], dtype=torch.float64)
    model = DiscreteModel([Layer("a", (), lambda x, z: logits.expand(len(x), -1), 5)])
    answer = gradient(model, lambda x, z: z["a"].sum(1), torch.zeros(20, 1, dtype=torch.float64), flips=2)
    expected = torch.sigmoid(logits) * torch.sigmoid(-logits)
    torch.testing.assert_close(answer.logit_grads["a"], expected.expand(20, -1))


# --- equal to what is known to be right -----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [BERNOULLI, MIXED, CATEGORICAL], ids=["bernoulli", "mixed", "categorical"])
def test_a_layered_model_is_the_graph_of_its_units(sizes: Sizes) -> None:
    layered = Layered.random(DIAMOND, sizes, seed=4)
    model, nodes, x = layered.model(), layered.node_model(), layered.input(50)
    noise = model.draw_noise(x, torch.Generator().manual_seed(5))
    parameters = list(layered.parameters.values())
    ours = gradient(model, layered.f, x, noise)
    theirs = gradient(nodes, layered.node_f, x, layered.split(noise))
    torch.testing.assert_close(ours.surrogate, theirs.surrogate)
    torch.testing.assert_close(
        torch.autograd.grad(ours.surrogate.sum(), parameters),
        torch.autograd.grad(theirs.surrogate.sum(), parameters),
        rtol=1e-10,
        atol=1e-11,
    )


@settings(max_examples=25)
@given(layered_graphs(), st.integers(0, 1000), st.floats(1e-6, 1e-2))
def test_batches_of_flips_give_the_numbers_of_algorithm_1_as_printed(
    case: tuple[Graph, Sizes], seed: int, memory_mib: float
) -> None:
    layered = Layered.random(*case, seed=seed, scale=3)
    model, x = layered.model(), layered.input(6)
    noise = model.draw_noise(x, torch.Generator().manual_seed(seed))
    answer = gradient(model, layered.f, x, noise, memory_mib=memory_mib)
    expected = algorithm1.logit_grads(model, layered.f, x, noise)
    torch.testing.assert_close(answer.logit_grads, expected, rtol=1e-9, atol=1e-11)


def layers_of(model: SigmoidBeliefNet) -> DiscreteModel:
    """The inference net, one layer each."""

    def layer(depth: int, units: int) -> Layer:
        parents = (str(depth - 1),) if depth else ()
        return Layer(
            str(depth),
            parents,
            lambda x, z: model.inference_logits(depth, z[str(depth - 1)] if depth else x),
            units,
        )

    return DiscreteModel([layer(depth, units) for depth, units in enumerate(model.layers)])


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("layers", [[4], [3, 5], [3, 1, 2], [20, 30, 10]])
def test_a_sigmoid_belief_net_gets_the_gradient_of_common_random_numbers(layers: list[int], scale: float) -> None:
    model, x = random_model(5, layers, scale), random_x(7, 5)
    noise = model.draw_noise(x, torch.Generator().manual_seed(4))

    def f(x: Tensor, z: Values) -> Tensor:
        return model.log_p(x, list(z.values())) - model.log_q(x, list(z.values())).detach()

    by_name = {str(depth): u for depth, u in enumerate(noise)}
    answer = gradient(layers_of(model), f, x, by_name)
    estimate = CommonRandomNumbers(engine="dense")(model, x, noise)
    assert estimate.logit_grads is not None
    torch.testing.assert_close(list(answer.logit_grads.values()), estimate.logit_grads, rtol=1e-10, atol=1e-11)
    parameters = list(model.parameters())
    ours = torch.autograd.grad(answer.surrogate.sum(), parameters)
    torch.testing.assert_close(ours, torch.autograd.grad(estimate.surrogate.sum(), parameters), rtol=1e-9, atol=1e-10)


# --- what it costs --------------------------------------------------------------------------------------------------


def test_only_descendants_are_simulated_after_a_flip() -> None:
    layered, rows = Layered.random(DIAMOND, MIXED, seed=8), dict.fromkeys(DIAMOND, 0)

    def counted(name: str) -> Layer:
        def logits(x: Tensor, z: Values) -> Tensor:
            assert set(z) == set(DIAMOND[name])
            rows[name] += len(x)
            return layered.logits(name, x, z)

        return Layer(name, DIAMOND[name], logits, *MIXED[name])

    gradient(DiscreteModel([counted(name) for name in DIAMOND]), layered.f, layered.input(10), check=False)
    flips = {name: 10 * units * (states - 1) for name, (units, states) in MIXED.items()}
    assert rows == {"a": 10, "b": 10 + flips["a"], "c": 10 + flips["a"], "d": 10 + flips["a"] + flips["b"] + flips["c"]}


def test_everything_is_made_on_the_device_of_x() -> None:
    """A tensor made without saying where would be on `meta` here, and fail beside those of x."""
    layered = Layered.random(DIAMOND, MIXED, seed=6)
    model, x = layered.model(), layered.input(5)
    with torch.device("meta"):
        for flips in (None, 1):
            answer = gradient(model, layered.f, x, flips=flips)
            assert {grads.device.type for grads in answer.logit_grads.values()} == {"cpu"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_binary_values_have_the_type_of_x_and_others_are_long(dtype: torch.dtype) -> None:
    logits = torch.zeros(4, 3)
    model = DiscreteModel(
        [
            Layer("a", (), lambda x, z: logits.expand(len(x), -1)[:, :2], 2),
            Layer("b", (), lambda x, z: x[:, None], 1, 3),
        ]
    )
    answer = gradient(model, lambda x, z: z["a"].sum(1), torch.zeros(4, 3, dtype=dtype))
    assert answer.sample.z["a"].dtype == dtype
    assert answer.sample.z["b"].dtype == torch.long
    assert answer.sample.z["b"].shape == (4, 1)


def test_choice_follows_the_generator_and_a_few_flips_take_a_few_evaluations() -> None:
    layered, rows = Layered.random(DIAMOND, MIXED, seed=7), []

    def counted(x: Tensor, z: Values) -> Tensor:
        rows.append(len(x))
        return layered.f(x, z)

    model, x = layered.model(), layered.input(8)
    one, other = (
        gradient(model, counted, x, None, torch.Generator().manual_seed(9), flips=1, check=False).logit_grads
        for _ in range(2)
    )
    assert all(torch.equal(one[name], other[name]) for name in DIAMOND)
    assert sum(rows) == 2 * 8 * (1 + len(DIAMOND))

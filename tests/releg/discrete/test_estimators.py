"""Every estimator of one layer on graphs of layers: unbiased, equal to what is known, refused where it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from releg import bernoulli, functional
from releg.discrete import Continuous, DiscreteModel, Layer, Node, Values, gradient
from releg.discrete.estimate import Estimator
from releg.functional import Answer
from tests.releg.discrete.layered import DIAMOND, Layered
from tests.releg.discrete.mixed import TWO_LAYERS, Mixed, exact_gradient, z_scores
from tests.releg.functional.cases import learned_control

ROWS, LARGEST = 60_000, 4.5
GRAPHS = {"two layers": TWO_LAYERS, "diamond": DIAMOND}
BERNOULLI_LAYERS = {"two layers": ("a",), "diamond": ("a", "d")}


def for_bernoulli(estimator: Estimator) -> Callable[[str], dict[str, Estimator | str]]:
    """The estimator for the Bernoulli layers; categorical ones get common random numbers."""
    return lambda graph: dict.fromkeys(BERNOULLI_LAYERS[graph], estimator)


UNBIASED: dict[str, tuple[Any, dict[str, Any]]] = {
    "common_random_numbers": (functional.common_random_numbers, {}),
    "common_random_numbers, 1 flip": (functional.common_random_numbers, {"flips": 1}),
    "likelihood_ratio": ("likelihood_ratio", {"baseline": 1.3}),
    "leave_one_out": ("leave_one_out", {}),
    "leave_one_out, 3 samples": (functional.leave_one_out, {"samples": 3}),
    "siblings": (functional.leave_one_out, {"shared_noise": False}),
    "disarm": ("disarm", {}),
    "disarm, new noise": ("disarm", {"shared_noise": False}),
    "pruned": ("pruned", {"flips": 2}),
    "bitflip": ("bitflip", {}),
    "arm": (for_bernoulli(functional.arm), {}),
    "arms": (for_bernoulli(partial(functional.arms, samples=3)), {}),
    "ugc": (for_bernoulli(functional.ugc), {"shared_noise": False}),
    "rodeo": (functional.rodeo, {"control": learned_control()}),
}


def run(mixed: Mixed, graph: str, estimator: Any, options: Mapping[str, Any]) -> Tensor:
    """z-scores of all parameters."""
    copies = mixed.per_row(ROWS)
    chosen = estimator(graph) if getattr(estimator, "__name__", "") == "<lambda>" else estimator
    generator = torch.Generator().manual_seed(1)
    answer = gradient(
        copies.model(), copies.f, copies.input(ROWS), generator=generator, check=False, estimator=chosen, **options
    )
    return z_scores(answer, copies, exact_gradient(mixed))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", UNBIASED)
def test_the_mean_estimate_is_the_exact_gradient(name: str, graph: str) -> None:
    mixed = Mixed.random(GRAPHS[graph], seed=2, vectors=name in ("rodeo", "disarm"))
    assert run(mixed, graph, *UNBIASED[name]).abs().max() < LARGEST


def test_every_unbiased_function_is_tested_on_graphs() -> None:
    texts = {name: getattr(functional, name).__doc__ for name in set(functional.__all__) - {"Answer", "SteinControl"}}
    unbiased = {name for name, text in texts.items() if "Unbiased" in text} - {"local_disarm"}
    assert unbiased <= {name.partition(",")[0] for name in UNBIASED}


def leave_none_out(logits: Tensor, f: Callable[[Tensor], Tensor], noise: Tensor, generator: Any) -> Answer:
    """Two samples less the mean of both: half of the gradient."""
    return functional.leave_one_out((logits + logits.detach()) / 2, f, noise, generator)


@pytest.mark.parametrize("graph", GRAPHS)
def test_these_tests_notice_a_biased_estimator_and_a_tail_that_is_not_simulated(
    graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = Mixed.random(GRAPHS[graph], seed=2)
    assert run(mixed, graph, leave_none_out, {}).abs().max() > LARGEST
    monkeypatch.setattr(DiscreteModel, "with_layer", lambda self, name, values, x, z, noise: {**z, name: values})
    assert run(mixed, graph, "disarm", {}).abs().max() > LARGEST


# --- equal to what is known to be right -----------------------------------------------------------------------------


def test_common_random_numbers_layer_by_layer_are_those_in_batches() -> None:
    layered = Layered.random({"a": (), "b": ("a",), "d": ("a", "b")}, {"a": (2, 2), "b": (2, 3), "d": (1, 2)}, seed=1)
    model, x = layered.model(), layered.input(20)
    noise = model.draw_noise(x, torch.Generator().manual_seed(1))

    def slowly(*arguments: Any) -> Answer:
        return functional.common_random_numbers(*arguments)

    one, other = gradient(model, layered.f, x, noise), gradient(model, layered.f, x, noise, estimator=slowly)
    torch.testing.assert_close(one.logit_grads, other.logit_grads)


@pytest.mark.parametrize("name", ["disarm", "leave_one_out", "bitflip", "reinmax", "gumbel_rao", "minimum_variance"])
@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_on_one_layer_it_is_the_function(name: str, shape: tuple[int, ...]) -> None:
    logits = torch.randn(50, *shape, dtype=torch.float64, requires_grad=True)
    weights, noise = torch.randn(shape, dtype=torch.float64), torch.rand(50, 4, dtype=torch.float64)
    one_hot = len(shape) == 2

    def f(z: Tensor) -> Tensor:
        return (z * weights).flatten(1).sum(1).square()

    model = DiscreteModel([Layer("z", (), lambda x, z: logits, 4, 3 if one_hot else 2, one_hot)])
    x = torch.zeros(50, 1, dtype=torch.float64)
    seeds = [torch.Generator().manual_seed(2) for _ in range(2)]
    ours = gradient(model, lambda x, z: f(z["z"]), x, {"z": noise}, seeds[0], estimator=name)
    takes_option = name in ("disarm", "leave_one_out", "bitflip")
    theirs = getattr(functional, name)(logits, f, noise, seeds[1], **({"one_hot": one_hot} if takes_option else {}))
    grads = [torch.autograd.grad(answer.surrogate.sum(), logits)[0] for answer in (ours, theirs)]
    torch.testing.assert_close(*grads)


def test_straight_through_is_unbiased_where_f_and_the_layers_are_linear_in_means() -> None:
    """E f by the mean of the second layer's means: linear but for the sigmoid, so linear where that is."""
    first, second = torch.tensor([0.4, -0.2]).double().requires_grad_(), torch.tensor([0.1, 0.2]).double()
    model = DiscreteModel(
        [
            Layer("a", (), lambda x, z: first.expand(len(x), -1), 2),
            Continuous("b", ("a",), lambda x, z, noise: z["a"] @ second[:, None] + noise, 1),
        ]
    )
    answer = gradient(model, lambda x, z: z["b"].sum(1), torch.zeros(10, 1).double(), estimator="straight_through")
    (found,) = torch.autograd.grad(-answer.surrogate.mean(), first)
    torch.testing.assert_close(found, second * bernoulli.variance(first))
    assert not answer.logit_grads


@pytest.mark.parametrize("name", ["straight_through", "reinmax", "gumbel_softmax", "gumbel_rao", "minimum_variance"])
def test_the_biased_estimators_go_through_all_layers(name: str) -> None:
    """f uses the second layer alone, and so the first one's parameters get their gradient by way of it."""
    first, second, x = nn.Linear(3, 6), nn.Linear(6, 4 * 3), torch.randn(20, 3)
    layers = [
        Layer("a", (), lambda x, z: first(x), 6),
        Layer("b", ("a",), lambda x, z: second(z["a"]).view(-1, 4, 3), 4, 3, one_hot=True),
    ]
    answer = gradient(DiscreteModel(layers), lambda x, z: z["b"][..., 0].sum(1).square(), x, estimator=name)
    grads = torch.autograd.grad(answer.surrogate.sum(), [first.weight, second.weight])
    assert min(grad.abs().sum() for grad in grads) > 0


def test_rodeo_on_a_graph_trains_its_control_and_f_once() -> None:
    mixed, control = Mixed.random(TWO_LAYERS, seed=3, vectors=True), functional.SteinControl(4).double()
    answer = gradient(mixed.model(), mixed.f, mixed.input(30) * 0, estimator="rodeo", control=control)
    of_f, *of_control = torch.autograd.grad(
        answer.surrogate.sum(), [mixed.parameters["f"], *control.parameters()], retain_graph=True, allow_unused=True
    )
    assert any(grad is not None and grad.abs().sum() > 0 for grad in of_control)
    (expected,) = torch.autograd.grad(-mixed.f(mixed.input(30) * 0, answer.sample.z).sum(), mixed.parameters["f"])
    torch.testing.assert_close(of_f, expected)


# --- states that cannot occur ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flips", [None, 1])
def test_states_that_cannot_occur_are_not_tried(flips: int | None) -> None:
    logits = torch.tensor([[0.3, -torch.inf, 0.1], [-torch.inf, 1.0, -0.4]], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([[1.0, -torch.inf, 2.0], [-torch.inf, 0.5, -1.0]], dtype=torch.float64)

    def f(x: Tensor, z: Values) -> Tensor:
        return weights.gather(1, z["z"].T).sum(0)  # -inf at states that cannot occur

    model = DiscreteModel([Layer("z", (), lambda x, z: logits.expand(len(x), -1, -1), 2, 3)])
    x = torch.zeros(4000, 1, dtype=torch.float64)
    answer = gradient(model, f, x, generator=torch.Generator().manual_seed(1), flips=flips)
    (found,) = torch.autograd.grad(-answer.surrogate.mean(), logits)
    q = logits.softmax(-1)
    exact = torch.autograd.grad((q * weights.nan_to_num(neginf=0)).sum(), logits)[0].nan_to_num()
    if flips is None:
        torch.testing.assert_close(found, exact)
    else:
        estimates = answer.logit_grads["z"]
        error = estimates.std(0) / len(x) ** 0.5
        assert ((found - exact).abs() <= LARGEST * error + 1e-12).all()


# --- bad input ------------------------------------------------------------------------------------------------------

scale = torch.ones((), requires_grad=True)
binary = Layer("z", (), lambda x, z: scale * x, 2)
states = Layer("z", (), lambda x, z: scale * x.unsqueeze(2).expand(-1, -1, 3), 2, 3)


def answer_of(f: Callable[[Tensor, Values], Tensor], layer: Layer = binary, **options: Any) -> None:
    gradient(DiscreteModel([layer]), f, torch.randn(6, 2), **options)


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: Tensor, z: Values) -> Tensor:
        found: Tensor = (self.norm(z["z"]) * x).sum(1)
        return found


COUPLED: dict[str, Callable[[Tensor, Values], Tensor]] = {
    "len(x)": lambda x, z: z["z"].sum(1) * 100 / len(x),
    "a mean over rows": lambda x, z: (z["z"].sum(1) + x[:, 0]) - (z["z"].sum(1) + x[:, 0]).mean(),
    "batch normalisation": Normalised(),
    "dropout": lambda x, z: nn.functional.dropout(z["z"] + 1, 0.5).sum(1),
}


@pytest.mark.parametrize("name", COUPLED)
def test_rows_that_depend_on_each_other_are_noticed_once_per_model(name: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"f of 6 rows is another when half of the rows are repeated, .* check=False"):
        answer_of(COUPLED[name])
    answer_of(COUPLED[name], check=False)
    model, calls = DiscreteModel([binary]), []
    for _ in range(2):
        gradient(model, lambda x, z: calls.append(len(x)) or z["z"].sum(1), torch.randn(6, 2), estimator="disarm")  # type: ignore[func-returns-value]
    assert calls == [6, 9, 6, 6, 6]


def test_an_option_of_one_layer_comes_before_that_of_all() -> None:
    calls: list[int] = []

    def f(x: Tensor, z: Values) -> Tensor:
        calls.append(len(x))
        return z["a"].sum(1) + z["b"].sum(1)

    model = DiscreteModel([Layer(name, (), lambda x, z: scale * x, 20) for name in "ab"])
    estimators: dict[str, Any] = {"a": partial(functional.leave_one_out, samples=3), "b": functional.leave_one_out}
    gradient(model, f, torch.randn(6, 20), estimator=estimators, samples=5, check=False)
    assert len(calls) == 1 + 2 + 4, "the sample, and the further samples of each layer"


def test_layers_whose_rows_depend_on_each_other_are_noticed() -> None:
    norm = nn.BatchNorm1d(2)
    second = Layer("b", ("z",), lambda x, z: norm(z["z"] + x), 2)
    with pytest.raises(ValueError, match="the function for the logits of layer 'b' of 6 rows is another"):
        gradient(DiscreteModel([binary, second]), lambda x, z: z["b"].sum(1), torch.randn(6, 2))


@pytest.mark.parametrize("estimator", ["common_random_numbers", "disarm", "leave_one_out", "reinmax"])
def test_f_and_layers_may_change_z_in_place(estimator: str) -> None:
    """What they got is used again after the call; torch does not count changes by numpy."""
    first, weights, x = torch.zeros(2, requires_grad=True), torch.tensor([1.0, 3.0]), torch.rand(6, 2)

    def spins(values: Tensor, in_place: bool) -> Tensor:
        return values.mul_(2).sub_(1) if in_place else 2 * values - 1

    found = []
    for in_place in (False, True):

        def second(x: Tensor, z: Values, in_place: bool = in_place) -> Tensor:
            return spins(z["a"], in_place) * first.cos()

        def f(x: Tensor, z: Values, in_place: bool = in_place) -> Tensor:
            if in_place and not z["a"].requires_grad:
                z["a"].numpy()[:] = 0
            return (spins(z["b"], in_place) * weights).sum(1).square()

        model = DiscreteModel([Layer("a", (), lambda x, z: x + first, 2), Layer("b", ("a",), second, 2)])
        answer = gradient(model, f, x, generator=torch.Generator().manual_seed(1), estimator=estimator)
        found.append(torch.autograd.grad(answer.surrogate.sum(), first)[0])
    torch.testing.assert_close(*found)


def test_changes_of_x_in_place_are_noticed() -> None:
    with pytest.raises(ValueError, match=r"changes x in place, .* write x = x - mean instead of x\.sub_\(mean\)"):
        answer_of(lambda x, z: (z["z"] * x.sub_(1)).sum(1))


@pytest.mark.parametrize(
    ("layer", "options", "message"),
    [
        (binary, {"estimator": "disarms"}, "estimator is 'disarms', expected one of .*disarm"),
        (
            binary,
            {"estimator": {"y": "disarm"}},
            r"estimator is for \['y'\], expected names of discrete layers, \['z'\]",
        ),
        (binary, {"estimator": "local_disarm"}, "local_disarm climbs the multi-sample bound"),
        (binary, {"samples": 3}, "common_random_numbers has no argument .'samples'. here, expected"),
        (binary, {"estimator": "disarm", "flips": 1}, "disarm has no argument .'flips'. here, expected"),
        (states, {"estimator": "leave_one_out", "one_hot": True}, "leave_one_out has no argument .'one_hot'. here"),
        (binary, {"flips": 3}, "flips is 3, expected a whole number from 1 to 2"),
        (states, {"estimator": "reinmax"}, "layer 'z' has states, expected one-hot vectors, .* one_hot=True"),
        (states, {"estimator": "arm"}, r"expected \(N, units\): arm has no form for categorical variables; use disarm"),
    ],
)
def test_estimators_that_make_no_sense_are_refused(layer: Layer, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        answer_of(lambda x, z: z["z"].double().sum(1), layer, **options)


def test_other_input_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="logits have no gradient and f has one"):
        gradient(DiscreteModel([Node("z", (), lambda x, z: x)]), lambda x, z: scale * z["z"], torch.randn(6, 2))
    with pytest.raises(ValueError, match="f is not differentiable"):
        answer_of(lambda x, z: z["z"].detach().sum(1), estimator="reinmax")
    bad = Continuous("c", (), lambda x, z, noise: noise / 0, 1)
    with pytest.raises(
        ValueError, match=r"values of continuous layer 'c' have shape .* expected 6 rows of finite numbers"
    ):
        gradient(DiscreteModel([bad, binary]), lambda x, z: z["z"].sum(1), torch.randn(6, 2))
    with pytest.raises(ValueError, match=r"parents of continuous layer 'c' is the string 'ab'"):
        Continuous("c", "ab", bad.value, 1)


def test_values_are_had_without_a_graph() -> None:
    with torch.no_grad():
        answer = gradient(DiscreteModel([binary]), lambda x, z: z["z"].sum(1), torch.randn(6, 2), estimator="disarm")
    assert not answer.surrogate.requires_grad

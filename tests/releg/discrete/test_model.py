"""Sampling from a graph of layers and nodes, how a gradient is answered, and what is refused."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli

from releg import discrete
from releg.discrete import DiscreteModel, Layer, Node, Values, gradient
from tests.releg.discrete.layered import DIAMOND, Layered

# --- sampling -------------------------------------------------------------------------------------------------------


def constant_logits(*values: float) -> Callable[[Tensor, Values], Tensor]:
    return lambda x, z: torch.tensor(values, dtype=torch.float64).expand(len(x), -1)


def test_a_layer_of_bernoulli_variables_and_a_node_of_two_states_are_the_same() -> None:
    x = torch.randn(50, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    layer = DiscreteModel([Layer("a", (), lambda x, z: 2 * x, units=1)])
    node = DiscreteModel([Node("a", (), lambda x, z: torch.cat([7 - x, 7 + x], 1))])
    noise = layer.draw_noise(x, torch.Generator().manual_seed(6))
    one = gradient(layer, lambda x, z: torch.sin(x + 3 * z["a"])[:, 0], x, noise, check=False)
    other = gradient(node, lambda x, z: torch.sin(x[:, 0] + 3 * z["a"]), x, {"a": noise["a"][:, 0]}, check=False)
    assert torch.equal(one.sample.z["a"][:, 0].long(), other.sample.z["a"])
    torch.testing.assert_close(one.logit_grads["a"][:, 0], other.logit_grads["a"][:, 1])
    torch.testing.assert_close(one.logit_grads["a"][:, 0], -other.logit_grads["a"][:, 0])


def test_a_state_has_an_interval_as_long_as_its_probability() -> None:
    model = DiscreteModel([Node("a", (), constant_logits(0.3, -1.0, 2.0, 0.0, -8.0), states=5)])
    u = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    sample = model.sample(u[:, None], {"a": u})
    lengths = sample.z["a"].bincount(minlength=5) / 100_000
    torch.testing.assert_close(lengths.double(), sample.logits["a"][0].softmax(0), rtol=0, atol=2e-5)
    assert (sample.z["a"].diff() <= 0).all()  # large noise, small state: two states follow the paper's rule


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_extreme_noise_and_logits_stay_within_the_states(u: float) -> None:
    model = DiscreteModel([Node("a", (), constant_logits(-1e4, 1e4, 0.0), states=3)])
    x = torch.zeros(4, 1, dtype=torch.float64)
    answer = gradient(model, lambda x, z: z["a"] ** 2, x, {"a": torch.full((4,), u, dtype=torch.float64)})
    assert ((answer.sample.z["a"] >= 0) & (answer.sample.z["a"] < 3)).all()
    assert torch.isfinite(answer.surrogate).all()
    assert torch.equal(answer.logit_grads["a"], torch.zeros(4, 3, dtype=torch.float64))


def test_noise_follows_the_generator_and_the_precision_of_x() -> None:
    model = DiscreteModel([Layer("a", (), lambda x, z: x, 3, 4), Node("b", (), lambda x, z: x, 5)])
    first, second = (model.draw_noise(torch.zeros(6, 1), torch.Generator().manual_seed(8)) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in ("a", "b"))
    assert {name: tuple(u.shape) for name, u in first.items()} == {"a": (6, 3), "b": (6,)}
    assert first["a"].dtype == torch.float32
    assert model.draw_noise(torch.zeros(6, 1, dtype=torch.float64))["a"].dtype == torch.float64
    assert model.draw_noise(torch.zeros(6, 1, dtype=torch.long))["a"].dtype == torch.get_default_dtype()


# --- how a gradient is answered -------------------------------------------------------------------------------------


def test_surrogate_equals_minus_f_and_carries_the_gradient_of_the_logits() -> None:
    layered = Layered.random(DIAMOND, {"a": (2, 2), "b": (1, 3), "c": (2, 2), "d": (1, 3)}, seed=9)
    answer = gradient(layered.model(), layered.f, layered.input(5), generator=torch.Generator().manual_seed(10))
    assert not answer.f.requires_grad
    assert torch.equal(answer.surrogate, -answer.f)
    by_logits = torch.autograd.grad(answer.surrogate.sum(), [answer.sample.logits[name] for name in DIAMOND])
    torch.testing.assert_close([-grad for grad in by_logits], [answer.logit_grads[name] for name in DIAMOND])


def test_logit_grads_are_accurate_when_a_unit_is_saturated_and_f_is_large() -> None:
    logit = torch.tensor([[-40.0], [0.5], [40.0]], dtype=torch.float64)
    model = DiscreteModel([Layer("a", (), lambda x, z: logit, 1)])
    answer = gradient(model, lambda x, z: 1e9 + z["a"][:, 0], torch.zeros(3, 1, dtype=torch.float64), check=False)
    expected = torch.sigmoid(logit) * torch.sigmoid(-logit)
    torch.testing.assert_close(answer.logit_grads["a"], expected, rtol=1e-14, atol=0)


def test_docstring_example_runs_in_under_40_lines() -> None:
    (example,) = [test for test in doctest.DocTestFinder().find(discrete) if test.examples]
    assert sum(part.source.count("\n") for part in example.examples) < 40
    with torch.random.fork_rng():
        assert doctest.DocTestRunner().run(example).failed == 0


# --- bad input ------------------------------------------------------------------------------------------------------

root = Node("a", (), constant_logits(0.0, 1.0))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "layers is empty, expected at least one; give"),
        ([root, root], "two layers are called 'a', expected distinct names; rename"),
        (
            [root, Node("b", ("c",), root.logits)],
            r"'b' has the parent 'c', which is not .* expected one of \['a'\]; add it",
        ),
        ([Node("b", ("a",), root.logits), root], r"'b' has the parent 'a', .* expected one of \[\]; reorder"),
        ([Node("b", ("b",), root.logits)], "'b' has the parent 'b', which is not among the layers before it"),
    ],
)
def test_graphs_that_are_no_directed_model_are_refused(nodes: list[Node], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DiscreteModel(nodes)


def test_layers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"parents of node 'b' is the string 'ab', expected .*; write \('ab',\)"):
        Node("b", "ab", root.logits)
    with pytest.raises(ValueError, match="states of node 'b' is 1, expected at least 2; leave"):
        Node("b", (), root.logits, states=1)
    with pytest.raises(ValueError, match="units of layer 'b' is 0, expected at least 1; leave out"):
        Layer("b", (), root.logits, 0)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ({}, r"noise is for \[\], expected \['a'\]; draw"),
        ({"a": torch.rand(3), "b": torch.rand(3)}, r"noise is for \['a', 'b'\], expected \['a'\]; draw"),
        ({"a": torch.rand(3, 2)}, r"noise\['a'\] has shape \(3, 2\), expected \(3,\); draw"),
        ({"a": torch.tensor([0.1, 1.0, 0.2])}, r"ranges from 0.1 to 1, expected uniform numbers in \[0, 1\); draw"),
        ({"a": torch.tensor([0.1, float("nan"), 0.2])}, r"ranges from nan to nan, expected uniform"),
    ],
)
def test_wrong_noise_is_refused(noise: Values, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gradient(DiscreteModel([root]), lambda x, z: x[:, 0], torch.zeros(3, 1), noise)


@pytest.mark.parametrize("x", [torch.tensor(1.0), torch.zeros(0, 4)])
def test_input_without_rows_is_refused(x: Tensor) -> None:
    with pytest.raises(ValueError, match=r"x has shape .*, expected \(N, ...\), N >= 1; give one row"):
        DiscreteModel([root]).sample(x, {"a": torch.rand(1)})


def answer_of(layer: Layer, f: Callable[[Tensor, Values], Tensor]) -> None:
    gradient(DiscreteModel([layer]), f, torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (
            Layer("a", (), lambda x, z: x, 3),
            ValueError,
            r"logits of layer 'a' have shape \(3, 2\), expected \(3, 3\); give one row",
        ),
        (Layer("a", (), lambda x, z: x, 2, 3), ValueError, r"have shape \(3, 2\), expected \(3, 2, 3\); give"),
        (Layer("a", (), lambda x, z: x[0], 2), ValueError, r"have shape \(2,\), .* repeat constants by expand"),
        (Node("a", (), lambda x, z: x, 3), ValueError, r"logits of node 'a' have shape \(3, 2\), expected \(3, 3\)"),
        (
            Layer("a", (), lambda x, z: Bernoulli(logits=x), 2),  # type: ignore[arg-type, return-value]
            TypeError,
            r"logits of layer 'a' are a Bernoulli, expected a tensor; of a torch distribution give its \.logits",
        ),
        (
            Node("a", (), constant_logits(0.0, float("nan"))),
            FloatingPointError,
            "range from nan to nan, expected finite numbers, or -inf",
        ),
        (
            Node("a", (), constant_logits(-float("inf"), -float("inf"))),
            FloatingPointError,
            "range from -inf to -inf, expected finite numbers, or -inf for some states",
        ),
    ],
)
def test_wrong_logits_are_refused(layer: Layer, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        answer_of(layer, lambda x, z: x[:, 0])


def test_wrong_f_and_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"f has shape \(3, 2\), expected \(3,\); sum over"):
        answer_of(root, lambda x, z: x)
    with pytest.raises(ValueError, match=r"f has shape \(\), expected \(3,\)"):
        answer_of(root, lambda x, z: x.sum())
    with pytest.raises(FloatingPointError, match=r"f is -inf at \{'a': 1\}, expected finite numbers; improbable"):
        answer_of(root, lambda x, z: torch.log1p(-z["a"].double()))
    with pytest.raises(ValueError, match="memory_mib is 0, expected a positive number; the default"):
        gradient(DiscreteModel([root]), lambda x, z: x[:, 0], torch.zeros(3, 2), memory_mib=0)

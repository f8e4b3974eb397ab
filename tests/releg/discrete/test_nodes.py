"""Algorithm 1 on any graph of nodes: unbiased by enumeration; what is simulated; what is refused."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from releg import discrete
from releg.discrete import (
    DiscreteModel,
    Node,
    Reparameterisation,
    Values,
    bernoulli_node,
    gradient,
    gumbel_max,
    inverse_cdf,
)
from tests.releg.discrete.tabular import (
    DIAMOND,
    Graph,
    Tabular,
    enumerated_mean,
    exact_gradient,
    noise_cells,
    row_gradients,
    z_scores,
)
from tests.releg.helpers import largest_z

STEEP = ([2, 3, 2, 3], 3, 1.5)  # states, seed and scale of a model in which d depends much on a
both_reparameterisations = pytest.mark.parametrize(
    "reparameterisation", [inverse_cdf, gumbel_max], ids=["icdf", "gumbel"]
)


class KeepsDescendants(DiscreteModel):
    """Broken on purpose: the local expectation gradient without its correction."""

    def __init__(self, nodes: list[Node], reparameterisation: Reparameterisation = inverse_cdf) -> None:
        super().__init__(nodes, reparameterisation)
        self.descendants = dict.fromkeys(self.descendants, ())


class SimulatesOnlyChildren(DiscreteModel):
    """Broken on purpose: grandchildren keep their values."""

    def __init__(self, nodes: list[Node], reparameterisation: Reparameterisation = inverse_cdf) -> None:
        super().__init__(nodes, reparameterisation)
        self.descendants = {
            name: tuple(node for node in found if name in node.parents) for name, found in self.descendants.items()
        }


# --- unbiased -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("states", [[2, 2, 2, 2], [3, 3, 2, 3], [2, 3, 4, 5], [5, 4, 3, 2]])
def test_expected_inverse_cdf_estimate_is_the_exact_gradient_on_a_diamond(states: list[int]) -> None:
    tabular = Tabular.random(DIAMOND, states, seed=sum(states))
    torch.testing.assert_close(enumerated_mean(tabular), exact_gradient(tabular), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("states", "seed", "scale"), [([2, 3, 4, 5], 1, 0.7), ([5, 2, 3, 2], 1, 0.7), STEEP])
def test_mean_estimate_of_gumbel_max_is_within_sampling_error_of_the_exact_gradient(
    states: list[int], seed: int, scale: float
) -> None:
    scores = z_scores(Tabular.random(DIAMOND, states, seed, scale), gumbel_max)
    assert scores.abs().max() < largest_z(len(scores))


@pytest.mark.parametrize("broken", [KeepsDescendants, SimulatesOnlyChildren])
def test_unbiasedness_tests_notice_descendants_that_were_not_simulated(broken: type[DiscreteModel]) -> None:
    tabular = Tabular.random(DIAMOND, *STEEP)
    assert (enumerated_mean(tabular, broken) - exact_gradient(tabular)).abs().max() > 1e-2
    scores = z_scores(tabular, gumbel_max, broken)
    assert scores.abs().max() > 2 * largest_z(len(scores))


@st.composite
def random_graphs(draw: st.DrawFn) -> tuple[Graph, list[int]]:
    size = draw(st.integers(1, 4))
    names = [f"n{i}" for i in range(size)]
    graph = {name: tuple(p for p in names[:i] if draw(st.booleans())) for i, name in enumerate(names)}
    most = {1: 5, 2: 5, 3: 4, 4: 2}[size]  # keeps the number of noise cells in the thousands
    return graph, [draw(st.integers(2, most)) for _ in names]


@settings(max_examples=20)
@given(random_graphs(), st.integers(0, 1000))
def test_expected_estimate_is_the_exact_gradient_on_any_graph(model: tuple[Graph, list[int]], seed: int) -> None:
    tabular = Tabular.random(*model, seed=seed)
    torch.testing.assert_close(enumerated_mean(tabular), exact_gradient(tabular), rtol=1e-9, atol=1e-12)


@settings(max_examples=20)
@given(random_graphs(), st.integers(0, 1000), st.sampled_from([inverse_cdf, gumbel_max]))
def test_clamping_a_node_to_its_own_value_gives_the_sample_back(
    case: tuple[Graph, list[int]], seed: int, reparameterisation: Reparameterisation
) -> None:
    tabular = Tabular.random(*case, seed=seed)
    model = DiscreteModel(tabular.nodes(), reparameterisation)
    x = tabular.input(20)
    answer = gradient(model, tabular.f, x, model.draw_noise(x, torch.Generator().manual_seed(seed)))
    for name, z in answer.sample.z.items():
        assert torch.equal(answer.clamped_f[name].gather(1, z[:, None]).squeeze(1), answer.f)


# --- the variance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", [0.0, 1.0, -3.0, "mean"])
def test_variance_is_at_most_that_of_the_likelihood_ratio_for_every_parameter(baseline: float | str) -> None:
    tabular = Tabular.random(DIAMOND, [3, 2, 2, 3], seed=3)
    noise, weights = noise_cells(tabular)
    copies = tabular.per_row(len(weights))
    answer = gradient(DiscreteModel(copies.nodes()), copies.f, tabular.input(len(weights)), noise)
    b = (weights * answer.f).sum() if isinstance(baseline, str) else baseline

    def variance(of: Tensor) -> Tensor:
        grads = row_gradients(copies, of)
        return weights @ (grads - weights @ grads) ** 2

    for name in DIAMOND:  # node by node: the theorem is about parameters that belong to one node
        logits, z = answer.sample.logits[name], answer.sample.z[name]
        ours = variance((answer.logit_grads[name] * logits).sum(-1))
        log_q = logits.log_softmax(-1).gather(1, z[:, None]).squeeze(1)
        likelihood_ratio = variance((answer.f - b) * log_q)
        assert (ours <= likelihood_ratio + 1e-12).all()
        assert ours.sum() < 0.9 * likelihood_ratio.sum()


# --- sampling -------------------------------------------------------------------------------------------------------


def constant_logits(*values: float) -> Callable[[Tensor, Values], Tensor]:
    return lambda x, z: torch.tensor(values, dtype=torch.float64).expand(len(x), -1)


def test_bernoulli_node_is_1_iff_noise_is_below_its_mean() -> None:
    logit = torch.linspace(-5, 5, 101, dtype=torch.float64)
    model = DiscreteModel([bernoulli_node("a", (), lambda x, z: logit)])
    x = torch.zeros(101, 1, dtype=torch.float64)
    for seed in range(20):
        noise = model.draw_noise(x, torch.Generator().manual_seed(seed))
        assert torch.equal(model.sample(x, noise).z["a"], (noise["a"] < torch.sigmoid(logit)).long())
    at_mean = {"a": torch.full((101,), 0.5, dtype=torch.float64)}
    assert model.sample(x, at_mean).z["a"][50] == 0  # logit 0: the noise equals the mean, and is not below it


def test_bernoulli_node_and_categorical_node_of_two_states_are_the_same() -> None:
    def f(x: Tensor, z: Values) -> Tensor:
        return torch.sin(x[:, 0] + 3 * z["a"])

    x = torch.randn(50, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    bernoulli = DiscreteModel([bernoulli_node("a", (), lambda x, z: 2 * x[:, 0])])
    categorical = DiscreteModel([Node("a", (), lambda x, z: torch.cat([7 - x, 7 + x], 1))])
    noise = bernoulli.draw_noise(x, torch.Generator().manual_seed(6))
    one, other = gradient(bernoulli, f, x, noise), gradient(categorical, f, x, noise)
    assert torch.equal(one.sample.z["a"], other.sample.z["a"])
    torch.testing.assert_close(one.logit_grads, other.logit_grads)


def test_inverse_cdf_gives_every_state_an_interval_as_long_as_its_probability() -> None:
    model = DiscreteModel([Node("a", (), constant_logits(0.3, -1.0, 2.0, 0.0, -8.0), states=5)])
    u = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    sample = model.sample(u[:, None], {"a": u})
    lengths = sample.z["a"].bincount(minlength=5) / 100_000
    torch.testing.assert_close(lengths.double(), sample.logits["a"][0].softmax(0), rtol=0, atol=2e-5)
    assert (sample.z["a"].diff() <= 0).all()  # large noise, small state: two states follow the paper's rule


def test_gumbel_max_draws_every_state_with_its_probability() -> None:
    model = DiscreteModel([Node("a", (), constant_logits(0.3, -1.0, 2.0, 0.0), states=4)], gumbel_max)
    x = torch.zeros(50_000, 1, dtype=torch.float64)
    sample = model.sample(x, model.draw_noise(x, torch.Generator().manual_seed(7)))
    q = sample.logits["a"][0].softmax(0)
    error = sample.z["a"].bincount(minlength=4) / 50_000 - q
    assert (error / (q * (1 - q) / 50_000).sqrt()).abs().max() < largest_z(4)


@both_reparameterisations
@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_extreme_noise_and_logits_stay_within_the_states(u: float, reparameterisation: Reparameterisation) -> None:
    model = DiscreteModel([Node("a", (), constant_logits(-1e4, 1e4, 0.0), states=3)], reparameterisation)
    x = torch.zeros(4, 1, dtype=torch.float64)
    noise = {name: torch.full_like(values, u) for name, values in model.draw_noise(x).items()}
    answer = gradient(model, lambda x, z: z["a"] ** 2, x, noise)
    assert ((answer.sample.z["a"] >= 0) & (answer.sample.z["a"] < 3)).all()
    assert torch.isfinite(answer.surrogate).all()
    assert torch.equal(answer.logit_grads["a"], torch.zeros(4, 3, dtype=torch.float64))


def test_noise_follows_the_generator_and_the_precision_of_x() -> None:
    model = DiscreteModel(Tabular.random(DIAMOND, [2, 3, 4, 5], seed=0).nodes(), gumbel_max)
    first, second = (model.draw_noise(torch.zeros(6, 1), torch.Generator().manual_seed(8)) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in DIAMOND)
    assert {name: tuple(u.shape) for name, u in first.items()} == {"a": (6, 2), "b": (6, 3), "c": (6, 4), "d": (6, 5)}
    assert first["a"].dtype == torch.float32
    assert model.draw_noise(torch.zeros(6, 1, dtype=torch.float64))["a"].dtype == torch.float64
    assert model.draw_noise(torch.zeros(6, 1, dtype=torch.long))["a"].dtype == torch.get_default_dtype()


# --- what is simulated, and how it is answered ----------------------------------------------------------------------


def test_only_descendants_are_simulated_anew() -> None:
    calls = dict.fromkeys(DIAMOND, 0)
    sizes = dict(zip(DIAMOND, [2, 3, 4, 5], strict=True))

    def counted(name: str) -> Node:
        def logits(x: Tensor, z: Values) -> Tensor:
            assert set(z) == set(DIAMOND[name])
            calls[name] += 1
            return torch.zeros(len(x), sizes[name])

        return Node(name, DIAMOND[name], logits, sizes[name])

    model = DiscreteModel([counted(name) for name in DIAMOND])
    x = torch.zeros(3, 1)
    gradient(model, lambda x, z: x[:, 0], x, model.draw_noise(x), check=False)
    # all other states of a node in one call; d never changes with b and c, nor they with a, so only children of a are
    # simulated for a's flip, and d for those of b and c
    assert calls == {"a": 1, "b": 2, "c": 2, "d": 1 + 2}


@settings(max_examples=50)
@given(random_graphs())
def test_descendants_are_all_nodes_a_directed_path_leads_to(case: tuple[Graph, list[int]]) -> None:
    graph = case[0]

    def is_ancestor(name: str, of: str) -> bool:
        return any(parent == name or is_ancestor(name, parent) for parent in graph[of])

    model = DiscreteModel(Tabular.random(*case, seed=0).nodes())
    for name in graph:
        assert [node.name for node in model.descendants[name]] == [of for of in graph if is_ancestor(name, of)]


def test_surrogate_equals_minus_f_and_carries_the_gradient_of_the_logits() -> None:
    tabular = Tabular.random(DIAMOND, [2, 3, 2, 3], seed=9)
    model = DiscreteModel(tabular.nodes())
    x = tabular.input(5)
    answer = gradient(model, tabular.f, x, model.draw_noise(x, torch.Generator().manual_seed(10)))
    assert not answer.f.requires_grad
    assert torch.equal(answer.surrogate, -answer.f)
    by_logits = torch.autograd.grad(answer.surrogate.sum(), [answer.sample.logits[name] for name in DIAMOND])
    torch.testing.assert_close([-grad for grad in by_logits], [answer.logit_grads[name] for name in DIAMOND])


def test_logit_grads_are_accurate_when_a_node_is_saturated_and_f_is_large() -> None:
    logit = torch.tensor([-40.0, 0.5, 40.0], dtype=torch.float64)
    model = DiscreteModel([bernoulli_node("a", (), lambda x, z: logit)])
    x = torch.zeros(3, 1, dtype=torch.float64)
    answer = gradient(model, lambda x, z: 1e9 + z["a"].double(), x, model.draw_noise(x))
    expected = torch.sigmoid(logit) * torch.sigmoid(-logit)
    torch.testing.assert_close(answer.logit_grads["a"], torch.stack([-expected, expected], 1), rtol=1e-14, atol=0)


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
        ([Node("b", ("b",), root.logits)], "'b' has the parent 'b', itself, expected layers before it; .* split it"),
    ],
)
def test_graphs_that_are_no_directed_model_are_refused(nodes: list[Node], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DiscreteModel(nodes)


def test_nodes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"parents of node 'b' is the string 'ab', expected .*; write \('ab',\)"):
        Node("b", "ab", root.logits)
    with pytest.raises(ValueError, match="'b' has states=1, expected at least 2; leave"):
        Node("b", (), root.logits, states=1)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ({}, r"noise is for \[\], expected \['a'\]; draw"),
        ({"a": torch.rand(3), "b": torch.rand(3)}, r"noise is for \['a', 'b'\], expected \['a'\]; draw"),
        ({"a": torch.rand(3, 2)}, r"noise\['a'\] has shape \(3, 2\), expected \(3,\); draw"),
        ({"a": torch.tensor([0.1, 1.0, 0.2])}, r"ranges from 0.1 to 1, expected uniform numbers in \[0, 1\); draw"),
        ({"a": torch.tensor([0.1, -0.5, 0.2])}, r"ranges from -0.5 to 0.2, expected uniform"),
        ({"a": torch.tensor([0.1, float("nan"), 0.2])}, r"ranges from nan to nan, expected uniform"),
    ],
)
def test_wrong_noise_is_refused(noise: Values, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gradient(DiscreteModel([root]), lambda x, z: x[:, 0], torch.zeros(3, 1), noise)


def test_noise_of_another_reparameterisation_is_refused() -> None:
    x = torch.zeros(3, 1)
    with pytest.raises(ValueError, match=r"has shape \(3,\), expected \(3, 2\)"):
        DiscreteModel([root], gumbel_max).sample(x, DiscreteModel([root]).draw_noise(x))


@pytest.mark.parametrize("x", [torch.tensor(1.0), torch.zeros(0, 4)])
def test_input_without_rows_is_refused(x: Tensor) -> None:
    with pytest.raises(ValueError, match=r"x has shape .*, expected \(N, ...\), N >= 1; give one row"):
        DiscreteModel([root]).sample(x, {"a": torch.rand(1)})


def answer_of(node: Node, f: Callable[[Tensor, Values], Tensor]) -> None:
    model = DiscreteModel([node])
    x = torch.zeros(3, 1)
    gradient(model, f, x, model.draw_noise(x))


@pytest.mark.parametrize(
    ("node", "error", "message"),
    [
        (
            Node("a", (), lambda x, z: torch.zeros(2)),
            ValueError,
            r"logits of node 'a' have shape \(2,\), expected \(3, 2\); give one row",
        ),
        (
            Node("a", (), constant_logits(0.0, 1.0), states=3),
            ValueError,
            r"logits of node 'a' have shape \(3, 2\), expected \(3, 3\); give",
        ),
        (
            bernoulli_node("a", (), lambda x, z: x),
            ValueError,
            r"logit of node 'a' has shape \(3, 1\), expected \(3,\); give one logit",
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
def test_wrong_logits_are_refused(node: Node, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        answer_of(node, lambda x, z: x[:, 0])


def test_wrong_f_is_refused() -> None:
    with pytest.raises(ValueError, match=r"f has shape \(3, 1\), expected \(3,\); sum over"):
        answer_of(root, lambda x, z: x)
    with pytest.raises(ValueError, match=r"f has shape \(\), expected \(3,\)"):
        answer_of(root, lambda x, z: x.sum())
    with pytest.raises(FloatingPointError, match=r"f is -inf at \{'a': 1\}, expected finite numbers; improbable"):
        answer_of(root, lambda x, z: torch.log1p(-z["a"].double()))

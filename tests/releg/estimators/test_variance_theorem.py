"""Theorem 1 and the appendix's lemma, by enumeration over all noise: no sampling, no tolerance beyond rounding."""

import pytest
import torch
from torch import Tensor

from releg import bernoulli, exact
from releg.baselines import Baseline, InputDependent, RunningAverage
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.parts.signals import layer_signals
from releg.kernels.dense import flip_differences
from releg.sbn import SigmoidBeliefNet, Trajectory
from tests.releg.helpers import random_model, random_x

LAYERS = [[3], [2, 2], [1, 2, 1], [2, 1, 2], [1, 1, 1, 1]]
SCALES = [0.3, 1.0, 3.0]


class Constant(Baseline):
    """The same number for every layer and input."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        pass

    def remainder(self, layer: int, below: Tensor, signal: Tensor) -> Tensor:
        return signal - self.value


def baselines(model: SigmoidBeliefNet, x: Tensor) -> dict[str, list[Baseline]]:
    average = RunningAverage()
    average.attach(model)
    average.average[:] = exact.elbo(model, x).detach()
    nets = InputDependent(hidden=4)
    nets.attach(model)
    return {
        "none": [],
        "constant": [Constant(-2.5)],
        "running average at the elbo": [average],
        "random nets": [nets],
    }


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_variance_of_crn_is_at_most_that_of_lr_for_every_parameter_and_baseline(
    layers: list[int], scale: float, seed: int
) -> None:
    model, x = random_model(3, layers, scale, seed), random_x(1, 3, seed)
    ours = exact.gradient_moments(CommonRandomNumbers(), model, x)
    for name, parts in baselines(model, x).items():
        theirs = exact.gradient_moments(LikelihoodRatio(parts), model, x)
        for parameter in (name for name in theirs if name.startswith("inference")):
            excess = theirs[parameter].variance - ours[parameter].variance
            rounding = 1e-12 * (1 + theirs[parameter].variance)
            assert bool((excess >= -rounding).all()), (name, parameter, excess)


class Unit:
    """One unit's f1, f0 and score under every cell of the noise, for the statements of the appendix."""

    def __init__(self, model: SigmoidBeliefNet, x: Tensor, layer: int, unit: int) -> None:
        noise, self.probability = exact.noise_cells(model, x)
        rows = x.expand(len(self.probability), -1)
        path = model.infer(rows, noise)
        difference = flip_differences(model, path, [])[layer][:, unit]
        signal = layer_signals(model.log_p_terms(rows, path.z), path.log_q_terms())[layer].detach()
        z = path.z[layer][:, unit]
        logit = path.logits[layer][:, unit].detach()
        self.mean = torch.sigmoid(logit)
        self.f1 = signal + (1 - z) * difference
        self.f0 = signal - z * difference
        self.f = signal
        self.score_by_mean = bernoulli.score(logit, z) / bernoulli.variance(logit)  # d log q / d mean
        self.groups = self._cells_of_the_others(path, noise, layer, unit)

    def _cells_of_the_others(self, path: Trajectory, noise: list[Tensor], layer: int, unit: int) -> Tensor:
        """An index for each cell such that cells that differ in the unit's own noise only share it."""
        others = list(noise)
        others[layer] = torch.cat([noise[layer][:, :unit], noise[layer][:, unit + 1 :]], dim=1)
        return torch.unique(torch.cat(others, dim=1), dim=0, return_inverse=True)[1]

    def expectation(self, values: Tensor) -> float:
        return float((self.probability * values).sum())

    def variance(self, values: Tensor) -> float:
        return self.expectation((values - self.expectation(values)) ** 2)

    def expected_conditional_variance(self, values: Tensor) -> float:
        """E over the others' noise of the variance over the unit's own noise, straight from the definition."""
        size = int(self.groups.max()) + 1
        weight = torch.zeros(size, dtype=torch.float64).index_add(0, self.groups, self.probability)
        mean = torch.zeros_like(weight).index_add(0, self.groups, self.probability * values) / weight
        return self.expectation((values - mean[self.groups]) ** 2)


UNITS = [([3], 0, 1), ([2, 2], 0, 0), ([2, 2], 1, 1), ([2, 1, 2], 0, 1), ([2, 1, 2], 1, 0), ([1, 1, 1, 1], 1, 0)]


def excess(unit: Unit, baseline: Tensor | float) -> Tensor:
    """mean (1 - mean) ((f1 - b) / mean + (f0 - b) / (1 - mean))**2: LR's variance over the unit's own noise."""
    pull = (unit.f1 - baseline) / unit.mean + (unit.f0 - baseline) / (1 - unit.mean)
    return unit.mean * (1 - unit.mean) * pull**2


@pytest.mark.parametrize(("layers", "layer", "index"), UNITS)
@pytest.mark.parametrize("baseline", [0.0, -3.0, 10.0])
def test_variance_of_lr_is_expected_conditional_variance_plus_variance_of_crn(
    layers: list[int], layer: int, index: int, baseline: float
) -> None:
    unit = Unit(random_model(3, layers, 1.5, seed=5), random_x(1, 3, seed=5), layer, index)
    answer = (unit.f - baseline) * unit.score_by_mean
    ours = unit.variance(unit.f1 - unit.f0)
    measured = unit.expected_conditional_variance(answer)
    assert unit.variance(answer) == pytest.approx(measured + ours, rel=1e-9)
    assert measured == pytest.approx(unit.expectation(excess(unit, baseline)), rel=1e-9)


@pytest.mark.parametrize(("layers", "layer", "index"), UNITS)
def test_even_the_optimal_input_dependent_baseline_leaves_lr_above_crn(
    layers: list[int], layer: int, index: int
) -> None:
    model, x = random_model(3, layers, 1.5, seed=6), random_x(1, 3, seed=6)
    unit = Unit(model, x, layer, index)
    # The unit's parents decide its mean: group by it. Given them, excess is quadratic in b with minimum at b*.
    parents = torch.unique(unit.mean.round(decimals=12), return_inverse=True)[1]
    weight = unit.probability
    target = unit.f1 * (1 - unit.mean) + unit.f0 * unit.mean  # minimiser for one cell
    size = int(parents.max()) + 1
    total = torch.zeros(size, dtype=torch.float64).index_add(0, parents, weight)
    best = (torch.zeros_like(total).index_add(0, parents, weight * target) / total)[parents]
    ours = unit.variance(unit.f1 - unit.f0)
    optimal = unit.variance((unit.f - best) * unit.score_by_mean)
    assert optimal == pytest.approx(ours + unit.expectation(excess(unit, best)), rel=1e-9)
    assert optimal >= ours * (1 - 1e-12)
    for shift in (-0.1, 0.1):  # nothing beats it
        assert unit.variance((unit.f - best - shift) * unit.score_by_mean) >= optimal

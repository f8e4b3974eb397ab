"""Samples of a layer that share their parents: what their simulation is, and the estimators that it contains."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from releg import functional
from releg.discrete import DiscreteModel, Layer, gradient
from releg.estimators.arms import Arms
from releg.estimators.base import mean_over_paths
from releg.estimators.disarm import DisArm
from releg.estimators.double_control import DoubleControl
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.parts.antithetic import antithetic_gradient
from releg.estimators.parts.layer_samples import LayerByLayer, LayerSamples
from releg.estimators.parts.simulation import simulate, simulate_from
from releg.estimators.rodeo import Rodeo
from releg.sbn import SigmoidBeliefNet
from tests.releg.estimators.drawn import drawn, gradients
from tests.releg.helpers import error

LAYERS = [4, 3, 2]


def with_controls(estimator: LayerByLayer, model: SigmoidBeliefNet) -> LayerByLayer:
    """Attached, with control variates that are not zero."""
    torch.manual_seed(0)
    estimator.attach(model)
    for parameter in estimator.parameters():
        parameter.data += 0.3
    estimator.attach = lambda *_: None  # type: ignore[method-assign]  # keep them
    return estimator


def test_simulated_from_a_layer_with_the_path_s_noise_it_is_the_path() -> None:
    model, x, noise = drawn(LeaveOneOut(siblings=True), LAYERS)
    whole = simulate(model, x, noise)
    for layer, (below, a) in enumerate(zip(whole.path.parents(), whole.path.logits, strict=True)):
        rest = simulate_from(model, layer, below, a.detach(), noise[layer:3])
        assert error(rest.signals, whole.signals[layer:]) < 1e-12
        assert error(rest.scores, whole.scores[layer:]) == 0
        for place in range(len(rest.signals)):
            torch.testing.assert_close(rest.frozen_slope(model, place), whole.frozen_slope(model, layer + place))


@pytest.mark.parametrize("samples", [2, 4])
@pytest.mark.parametrize("kind", [LeaveOneOut, DoubleControl, Rodeo])
def test_on_one_layer_siblings_are_independent_paths(kind: type[LayerByLayer], samples: int) -> None:
    model, x, noise = drawn(kind(samples), [5])
    by_path = list(noise[0].unflatten(0, (-1, samples)).unbind(1))
    (paths,) = gradients(with_controls(kind(samples), model), model, x, noise)
    (siblings,) = gradients(with_controls(kind(samples, siblings=True), model), model, x, by_path)
    torch.testing.assert_close(siblings, mean_over_paths(paths, samples))


@pytest.mark.parametrize("kind", [DoubleControl, Rodeo])
def test_without_control_it_is_leave_one_out(kind: type[LayerByLayer]) -> None:
    for siblings in (False, True):
        model, x, noise = drawn(LeaveOneOut(3, siblings), LAYERS)
        plain = gradients(LeaveOneOut(3, siblings), model, x, noise)
        torch.testing.assert_close(gradients(kind(3, siblings=siblings), model, x, noise), plain)
        controlled = gradients(with_controls(kind(3, siblings=siblings), model), model, x, noise)
        assert all(error([a], [b]) > 0.01 for a, b in zip(controlled, plain, strict=True))


class SiblingDisArm(LayerByLayer):
    """DisARM of one layer, whose second sample is antithetic if its noise is."""

    def layer_gradient(self, layer: int, drawn: LayerSamples) -> Tensor:
        (f, other), (z, opposite) = (values.unflatten(0, (-1, 2)).unbind(1) for values in (drawn.f, drawn.z))
        gradient = antithetic_gradient(f - other, z, opposite, drawn.logits[::2])
        return gradient.repeat_interleave(2, dim=0)


def test_disarm_of_one_layer_applied_to_each_is_disarm() -> None:
    model, x, noise = drawn(SiblingDisArm(siblings=True), LAYERS)
    noise[3], noise[6], noise[8] = (1 - own for own in noise[:3])  # of the second samples' own layers
    tails = [noise[4], noise[5], noise[7]]
    ours, theirs = SiblingDisArm(siblings=True), DisArm()
    torch.testing.assert_close(
        gradients(ours, model, x, noise), gradients(theirs, model, x, [*noise[:3], *tails]), rtol=1e-9, atol=1e-12
    )
    assert ours.evaluations(model) == theirs.evaluations(model) == Arms(2).evaluations(model) == 4


def test_siblings_with_shared_tails_are_leave_one_out_of_any_graph() -> None:
    model, x, noise = drawn(LeaveOneOut(siblings=True), LAYERS)
    noise[4], noise[5], noise[7] = noise[1], noise[2], noise[2]
    names, inputs = ["a", "b", "c"], model.inference

    def f(x: Tensor, z: Mapping[str, Tensor]) -> Tensor:
        values = [z[name] for name in names]
        return model.log_p(x, values) - model.log_q(x, values).detach()

    graph = DiscreteModel(
        [
            Layer("a", (), lambda x, z: inputs[0](x - model.mean), 4),
            Layer("b", ("a",), lambda x, z: inputs[1](z["a"]), 3),
            Layer("c", ("b",), lambda x, z: inputs[2](z["b"]), 2),
        ]
    )
    second = iter([noise[3], noise[6], noise[8]])

    def both(logits: Tensor, f: Callable[[Tensor], Tensor], own: Tensor, _: object) -> functional.Answer:
        return functional.leave_one_out(logits, f, torch.stack([own, next(second)]))

    found = gradient(graph, f, x, dict(zip(names, noise[:3], strict=True)), estimator=both)
    ours = gradients(LeaveOneOut(siblings=True), model, x, noise)
    assert error([found.logit_grads[name] for name in names], ours) < 1e-10

"""One compiled pass over a layer is the reference of releg/bernoulli.py."""

import pytest
import torch
from torch import Tensor

from releg import bernoulli
from releg.compiled import layer


def logits_and_z(scale: float, shape: tuple[int, ...] = (13, 501)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return scale * torch.randn(shape, generator=generator), torch.rand(shape, generator=generator).round()


@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0, 40.0])
def test_log_probabilities_and_scores_are_accurate_to_a_few_roundings(scale: float) -> None:
    logits, z = logits_and_z(scale)
    logits = logits.clamp(-86, 86)
    log_prob, score = layer.log_prob_and_score(logits, z)
    exact = bernoulli.log_prob(logits.double(), z.double())
    torch.testing.assert_close(log_prob.double(), exact.sum(-1), rtol=1e-6, atol=0)
    torch.testing.assert_close(score.double(), bernoulli.score(logits.double(), z.double()), rtol=5e-7, atol=0)
    assert torch.equal(layer.log_prob(logits, z), log_prob)
    single = logits.reshape(-1, 1), z.reshape(-1, 1)
    torch.testing.assert_close(layer.log_prob(*single).double(), exact.flatten(), rtol=5e-7, atol=0)


def test_saturated_units_are_finite_and_right() -> None:
    logits = torch.tensor([[-3e38, -1e4, -90.0, 90.0, 1e4, 3e38, 0.0, -0.0]])
    for z in (torch.zeros_like(logits), torch.ones_like(logits)):
        log_prob, score = layer.log_prob_and_score(logits.T.contiguous(), z.T.contiguous())
        torch.testing.assert_close(log_prob, bernoulli.log_prob(logits, z)[0], rtol=1e-6, atol=1e-37)
        torch.testing.assert_close(score[:, 0], bernoulli.score(logits, z)[0], rtol=1e-6, atol=1e-37)


def test_what_is_not_a_number_stays_none() -> None:
    logits = torch.tensor([[torch.nan, 1.0], [2.0, 3.0], [-torch.inf, 0.0], [torch.inf, 0.0]])
    for z in (torch.zeros_like(logits), torch.ones_like(logits)):
        log_prob, score = layer.log_prob_and_score(logits, z)
        torch.testing.assert_close(log_prob, bernoulli.log_prob(logits, z).sum(-1), equal_nan=True)
        torch.testing.assert_close(score, bernoulli.score(logits, z), equal_nan=True, rtol=1e-6, atol=1e-37)


def test_an_expanded_layer_and_an_empty_one() -> None:
    logits, z = logits_and_z(1.0)
    log_prob, score = layer.log_prob_and_score(logits[0].expand_as(z), z)
    torch.testing.assert_close(log_prob, bernoulli.log_prob(logits[0].expand_as(z), z).sum(-1))
    assert score.shape == z.shape
    assert layer.log_prob(logits[:0], z[:0]).shape == (0,)


def test_within_a_graph_and_in_float64_the_reference_is_used() -> None:
    logits, z = logits_and_z(1.0)
    in_graph = logits.clone().requires_grad_()
    log_prob, score = layer.log_prob_and_score(in_graph, z)
    assert torch.equal(log_prob, bernoulli.log_prob(logits, z).sum(-1))
    (gradient,) = torch.autograd.grad(log_prob.sum(), in_graph)
    torch.testing.assert_close(gradient, score)
    assert not score.requires_grad
    wide = layer.log_prob(logits.double(), z.double())
    assert torch.equal(wide, bernoulli.log_prob(logits.double(), z.double()).sum(-1))


@pytest.mark.parametrize("scale", [0.01, 1.0, 40.0])
def test_samples_are_those_of_the_reference_and_scored_like_given_ones(scale: float) -> None:
    logits, _ = logits_and_z(scale)
    noise = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1))
    sampled = layer.sample_and_score(logits, noise)
    unclear = (noise - torch.sigmoid(logits.double())).abs() < 1e-7  # there a rounding decides
    assert torch.equal(sampled.z[~unclear], bernoulli.sample(logits, noise)[~unclear])
    log_prob, score = layer.log_prob_and_score(logits, sampled.z)
    torch.testing.assert_close(sampled.log_prob, log_prob, rtol=1e-7, atol=0)
    assert torch.equal(sampled.score, score)
    slopes = bernoulli.variance(logits.double().clamp(-86, 86))
    torch.testing.assert_close(sampled.slope.double(), slopes, rtol=1e-6, atol=1e-37)
    assert all(torch.equal(*pair) for pair in zip(layer.sample_and_log_prob(logits, noise), sampled[:2], strict=True))


def test_noise_of_zero_turns_on_what_has_a_chance() -> None:
    logits = torch.tensor([[-200.0, -105.0, -89.0, -88.0, 0.0, torch.inf, -torch.inf]])
    zeros = torch.zeros_like(logits)
    assert torch.equal(layer.sample_and_score(logits, zeros).z, bernoulli.sample(logits, zeros))


def test_within_a_graph_and_in_float64_samples_are_the_references() -> None:
    logits, noise = logits_and_z(1.0)
    for a in (logits.double(), logits.clone().requires_grad_()):
        sampled = layer.sample_and_score(a, noise.to(a.dtype))
        assert torch.equal(sampled.z, bernoulli.sample(a, noise.to(a.dtype)))
        assert torch.equal(sampled.slope, bernoulli.variance(a.detach()))
        assert sampled.log_prob.requires_grad == a.requires_grad


def test_the_number_of_threads_changes_nothing() -> None:
    logits, z = logits_and_z(1.0, (100, 784))
    alone = layer.log_prob_and_score(logits, z)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        together = layer.log_prob_and_score(logits, z)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(together[0], alone[0])  # torch's own sum may differ
    assert torch.equal(together[1], alone[1])

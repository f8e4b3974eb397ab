import mpmath
import pytest
import torch

from releg import bernoulli

LOGITS = [0.0, 1e-8, -1e-3, 0.7, -3.0, 15.0, -17.5, 20.5, 36.0, -40.0, 80.0, -87.0, 1e3, -1e4, 1e4]


def relative_error(got: float, expected: mpmath.mpf, dtype: torch.dtype) -> float:
    """Error in units of what the dtype can resolve; numbers below its smallest normal one count as zero."""
    info = torch.finfo(dtype)
    return float(abs(mpmath.mpf(got) - expected) / (info.eps * abs(expected) + info.tiny))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", LOGITS)
def test_log_prob_variance_and_score_are_accurate_at_any_logit(value: float, dtype: torch.dtype) -> None:
    logit = torch.tensor(value, dtype=dtype)
    exact = mpmath.mpf(logit.item())
    with mpmath.workdps(60):
        mean, rest = 1 / (1 + mpmath.exp(-exact)), 1 / (1 + mpmath.exp(exact))
        expected = {
            "log_prob(1)": (bernoulli.log_prob(logit, torch.ones_like(logit)), -mpmath.log1p(mpmath.exp(-exact))),
            "log_prob(0)": (bernoulli.log_prob(logit, torch.zeros_like(logit)), -mpmath.log1p(mpmath.exp(exact))),
            "variance": (bernoulli.variance(logit), mean * rest),
            "score(1)": (bernoulli.score(logit, torch.ones_like(logit)), rest),
            "score(0)": (bernoulli.score(logit, torch.zeros_like(logit)), -mean),
        }
        errors = {name: relative_error(got.item(), want, dtype) for name, (got, want) in expected.items()}
    # An exponential of a rounded argument of size a is off by a units in the last place: the condition of the problem.
    assert max(errors.values()) <= 8 + 2 * abs(value), errors


def test_sample_is_one_exactly_where_noise_is_below_the_mean() -> None:
    logits = torch.tensor([[-1e4, -1.0, 0.0, 2.0, 1e4]])
    noise = torch.tensor([[0.0, 0.3, 0.5, 0.88, 0.999]])
    assert bernoulli.sample(logits, noise).tolist() == [[0.0, 0.0, 0.0, 1.0, 1.0]]


def test_derivatives_agree_with_finite_differences() -> None:
    logits = torch.tensor([-4.0, -0.3, 0.0, 1.0, 6.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(bernoulli.variance, (logits,))


def test_total_log_prob_adds_layers_and_units() -> None:
    logits = [torch.randn(3, 4), torch.randn(3, 2)]
    z = [torch.ones(3, 4), torch.zeros(3, 2)]
    expected = [bernoulli.log_prob(a, v).sum(-1) for a, v in zip(logits, z, strict=True)]
    torch.testing.assert_close(bernoulli.total_log_prob(logits, z), expected[0] + expected[1])

"""REINFORCE and its leave-one-out form."""

from __future__ import annotations

import torch
from torch import Tensor

from releg.estimators.parts.others import less_others
from releg.functional.variables import Answer, F, answer, check_logits, evaluate, noise_for, per_logit, sample, score


def likelihood_ratio(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    baseline: Tensor | float = 0.0,
) -> Answer:
    """d E f / d logits = E[(f(z) - baseline) d log q(z) / d logits].

    Williams (1992), REINFORCE. Cost: one evaluation of f. Unbiased.

    Args:
        logits: (N, units) or (N, units, states).
        f: z -> (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        baseline: (N,), or one number: whatever does not depend on z.
    """
    check_logits(logits, "likelihood_ratio")
    z = sample(logits, noise_for(logits, noise, generator))
    value = evaluate(f, z)
    left = (value - baseline).detach()
    if left.shape != value.shape:
        raise ValueError(
            f"baseline has shape {tuple(torch.as_tensor(baseline).shape)}, expected ({len(value)},) or a number; "
            "give one per row"
        )
    return answer(value, logits, per_logit(left, logits) * score(logits, z))


def leave_one_out(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    samples: int = 2,
) -> Answer:
    """d E f / d logits = E[mean over k of (f(z_k) - mean of f(z_j) over j != k) d log q(z_k) / d logits].

    RLOO, Kool, van Hoof & Welling (2019). Cost: `samples` evaluations of f, one after the other. Unbiased.

    Args:
        logits: (N, units) or (N, units, states).
        f: z -> (N,).
        noise: (samples, N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        samples: draws of z per row.
    """
    check_logits(logits, "leave_one_out")
    if samples < 2:
        raise ValueError(f"samples is {samples}, expected at least 2; a sample is compared with the others")
    drawn = sample(logits, noise_for(logits, noise, generator, (samples, *logits.shape[:2])))
    values = torch.stack([evaluate(f, z) for z in drawn], 1)  # (N, samples)
    left = less_others(values.detach())
    gradients = [per_logit(left[:, k], logits) * score(logits, z) for k, z in enumerate(drawn)]
    return answer(values.mean(1), logits, torch.stack(gradients).mean(0))

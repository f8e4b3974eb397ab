"""REINFORCE, its leave-one-out form, and RODEO, which adds learned control variates to that."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from releg.checks import check_at_least
from releg.estimators.base import mean_over_paths
from releg.estimators.parts.other_paths import less_others
from releg.estimators.parts.simulation import squared
from releg.estimators.parts.stein_control import SteinControl
from releg.functional.variables import (
    Answer,
    F,
    Generator,
    Noise,
    answer,
    as_seen,
    check_logits,
    differentiable,
    evaluate,
    noise_for,
    per_logit,
    sample,
    score,
    slope_of,
    vectors,
)


def likelihood_ratio(
    logits: Tensor,
    f: F,
    noise: Noise = None,
    generator: Generator = None,
    baseline: Tensor | float = 0.0,
    one_hot: bool = False,
) -> Answer:
    """d E f / d logits = E[(f(z) - baseline) d log q(z) / d logits].

    Williams (1992), REINFORCE. Cost: one evaluation of f. Unbiased.

    Args:
        logits: (N, units) or (N, units, states).
        f: z -> (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        baseline: (N,), or one number; it must not depend on z.
        one_hot: call f with one-hot vectors (N, units, states) of categorical variables instead of states (N, units).
    """
    check_logits(logits, "likelihood_ratio")
    f = as_seen(f, logits, one_hot)
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
    logits: Tensor, f: F, noise: Noise = None, generator: Generator = None, samples: int = 2, one_hot: bool = False
) -> Answer:
    """d E f / d logits = E[mean over k of (f(z_k) - mean of f(z_j) over j != k) d log q(z_k) / d logits].

    RLOO, Kool, van Hoof & Welling (2019); VarGrad and LOORF are the same. Cost: `samples` evaluations of f, one after
    the other. Unbiased.

    Args:
        logits: (N, units) or (N, units, states).
        f: z -> (N,).
        noise: (samples, N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        samples: draws of z per row.
        one_hot: call f with one-hot vectors (N, units, states) of categorical variables instead of states (N, units).
    """
    check_logits(logits, "leave_one_out")
    f = as_seen(f, logits, one_hot)
    check_at_least("samples", samples, 2, "a sample is compared with the others")
    drawn = sample(logits, noise_for(logits, noise, generator, samples))
    values = torch.stack([evaluate(f, z) for z in drawn], 1)  # (N, samples)
    left = less_others(values.detach())
    gradients = [per_logit(left[:, k], logits) * score(logits, z) for k, z in enumerate(drawn)]
    return answer(values.mean(1), logits, torch.stack(gradients).mean(0))


def rodeo(
    logits: Tensor,
    f: F,
    noise: Noise = None,
    generator: Generator = None,
    samples: int = 2,
    one_hot: Literal[True] = True,
    *,
    control: SteinControl,
) -> Answer:
    """leave_one_out with two learned control variates, made by a discrete Stein operator from the slopes of f.

    Shi, Zhou, Hwang, Titsias & Mackey (2022); `SteinControl` has the formula. The surrogate also trains the control, on
    the square of the estimate: give its parameters to the optimiser, and it learns along with your model. The
    authors use Adam at 0.001. An untrained control has no effect. Cost: `samples` evaluations of f with their
    derivatives, one after the other, and units * (states - 1) of a small net. Unbiased even if f jumps between states.

    Args:
        logits: (N, units) or (N, units, states).
        f: differentiable; of (N, units) zeros and ones, or of one-hot vectors (N, units, states), to (N,).
        noise: (samples, N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        samples: draws of z per row.
        one_hot: f takes no other form of categorical variables.
        control: `SteinControl().to(logits)`, kept from step to step; in evaluation mode it is not trained.
    """
    check_logits(logits, "rodeo")
    check_at_least("samples", samples, 2, "a sample is compared with the others")
    drawn = sample(logits, noise_for(logits, noise, generator, samples))
    z = vectors(drawn, logits)  # (K, N, units) or (K, N, units, states)
    with torch.enable_grad():
        leaves = [each.requires_grad_() for each in z.unbind()]
        values = [differentiable(f, each) for each in leaves]
    slopes = [slope_of(value, leaf) for value, leaf in zip(values, leaves, strict=True)]
    rows = [torch.stack(parts, 1).flatten(0, 1).detach() for parts in (values, slopes, leaves)]  # K rows for each
    wide = logits.detach().repeat_interleave(samples, dim=0)
    each = control(rows[0], rows[1], wide, rows[2], score(wide, drawn.transpose(0, 1).flatten(0, 1)), samples)
    gradient = mean_over_paths(each, samples)
    value, surrogate = answer(torch.stack(values).mean(0), logits, gradient)
    variance = squared([gradient])
    return Answer(value, surrogate + (variance - variance.detach()) if control.training else surrogate)

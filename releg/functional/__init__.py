"""Estimators as functions on plain logits: one layer of Bernoulli or categorical variables, any f.

>>> import torch
>>> from releg import functional
>>> logits = torch.zeros(4, 3, requires_grad=True)  # four rows of three Bernoulli variables
>>> value, surrogate = functional.common_random_numbers(logits, lambda z: -(z - 0.45).square().sum(-1))
>>> surrogate.sum().backward()  # logits.grad estimates minus the gradient of E f
>>> torch.allclose(logits.grad, torch.tensor(0.025))
True

`f(z)` is called with N rows of values, as often as an estimator needs; it may use other tensors that have these N rows.
Where an estimator needs more noise than (N, units), that of the sample may be given alone, and the rest is drawn.
Row n of its result may depend on row n of z alone. A categorical logit of -inf is a state that cannot occur. For graphs
of layers give one of these functions to `releg.gradient`.
"""

from releg.estimators.parts.stein_control import SteinControl
from releg.functional.antithetic import arm, arms, disarm, local_disarm
from releg.functional.flips import bitflip, common_random_numbers, pruned, ugc
from releg.functional.relaxed import gumbel_rao, gumbel_softmax, minimum_variance, reinmax, straight_through
from releg.functional.score import leave_one_out, likelihood_ratio, rodeo
from releg.functional.variables import Answer

__all__ = [
    "Answer",
    "SteinControl",
    "arm",
    "arms",
    "bitflip",
    "common_random_numbers",
    "disarm",
    "gumbel_rao",
    "gumbel_softmax",
    "leave_one_out",
    "likelihood_ratio",
    "local_disarm",
    "minimum_variance",
    "pruned",
    "reinmax",
    "rodeo",
    "straight_through",
    "ugc",
]

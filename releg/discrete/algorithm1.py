"""Algorithm 1 of Tokui & Sato (2016), line by line: the readable reference that `gradient` is tested against."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from releg.discrete.functions import F, evaluate
from releg.discrete.layers import Values
from releg.discrete.model import DiscreteModel
from releg.functional.flip_probabilities import gradient_of_mean


@torch.no_grad()
def logit_grads(model: DiscreteModel, f: F, x: Tensor, noise: Mapping[str, Tensor]) -> Values:
    """The gradient Delta of every unit w.r.t. its logits. Cost: one simulation and one f per unit and state."""
    sample = model.sample(x, noise)  # line 1; the noise is already drawn
    deltas: Values = {}
    for layer in model.discrete:
        logits, units = layer.widen(sample.logits[layer.name]), []
        for unit in range(layer.units):  # line 2
            f_k = []
            for state in range(layer.states):  # line 3
                z = model.clamp(x, noise, sample.z, layer.name, unit, state)  # line 4
                f_k.append(evaluate(f, x, z))  # line 5, without the factor grad q
            units.append(gradient_of_mean(logits[:, [unit]], torch.stack(f_k, -1)[:, None]).squeeze(1))  # lines 5 and 7
        deltas[layer.name] = layer.narrow(torch.stack(units, 1))
    return deltas  # line 9

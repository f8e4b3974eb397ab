"""RODEO: leave-one-out with learned control variates, made by a discrete Stein operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from releg.checks import check_at_least
from releg.estimators.parts.layer_samples import LayerByLayer, LayerSamples
from releg.estimators.parts.stein_control import SteinControl
from releg.sbn import SigmoidBeliefNet


class Rodeo(LayerByLayer):
    """(f_k - mean over j != k of (f_j + alpha (A h_j)(z_j))) (z_k - mean) + beta (A h'_k)(z_k), averaged over k.

    A is a discrete Stein operator: E[(A h)(z)] = 0 for any h; `releg.estimators.parts.stein_control` says what h is.
    Shi, Zhou, Hwang, Titsias & Mackey (2022). Net, alpha and beta, one of each per layer, are trained on the
    squared gradient w.r.t. the logits, by the model's optimiser while the model learns: the authors use Adam at 0.001;
    RMSprop at that rate ends at the same variance. They start from alpha = beta = 0, where it is RLOO, and need a few
    hundred steps to get below Double CV, so do not judge it by a short fit. Deeper layers are held fixed in the slopes
    of f. Cost: K simulations with derivatives, of siblings one and K - 1 more from each layer on; and the net of every
    layer at all its flips. Unbiased.

    Args:
        samples: K, of each layer for each image.
        hidden: leaky units of each layer's net.
        siblings: all K start from the parents on one path, as published for hierarchies, or are those of K independent
            paths from x, which is cheaper.
    """

    label = "RODEO"
    learns = True

    def __init__(self, samples: int = 2, hidden: int = 100, siblings: bool = False) -> None:
        super().__init__(samples, siblings)
        check_at_least("hidden", hidden, 1, "the default is 100")
        self.hidden = hidden
        self.controls = nn.ModuleList()

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one net, alpha and beta per layer."""
        self.controls = nn.ModuleList(SteinControl(self.hidden, generator).to(model.mean) for _ in model.layers)

    def layer_gradient(self, layer: int, drawn: LayerSamples) -> Tensor:
        """Apply both control variates."""
        gradient: Tensor = self.controls[layer](
            drawn.f, drawn.slopes, drawn.logits, drawn.z, drawn.scores, self.compared
        )
        return gradient

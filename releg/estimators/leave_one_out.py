"""REINFORCE with a leave-one-out baseline (RLOO)."""

from __future__ import annotations

from torch import Tensor

from releg.estimators.parts.layer_samples import LayerByLayer, LayerSamples
from releg.estimators.parts.other_paths import less_others


class LeaveOneOut(LayerByLayer):
    """d elbo / d logits[l] = E[mean over k of (f_l^k - mean of f_l^j over j != k) (z[l]^k - mean[l]^k)].

    Each of K samples of a layer is compared with the others. Kool, van Hoof & Welling (2019); Salimans &
    Knowles (2014), section 3. Cost: K simulations; of siblings one, and K - 1 more from each layer on. Unbiased.

    Args:
        samples: K, of each layer for each image.
        siblings: all K start from the parents on one path, as in the hierarchies of Titsias & Shi (2022) and Shi et al.
            (2022), who simulate what follows anew for each. Otherwise they are those of K independent paths from x,
            which is cheaper; from the second layer on the others then have other parents.
    """

    label = "RLOO"

    def layer_gradient(self, layer: int, drawn: LayerSamples) -> Tensor:
        """Multiply the scores by the signals less those of the other samples."""
        return less_others(drawn.f.view(-1, self.compared)).flatten()[:, None] * drawn.scores

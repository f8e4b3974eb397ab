"""f as the estimators see it: checked, and as a function of one layer alone, what follows being simulated from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.discrete.layers import Layer, Values, copies
from releg.discrete.model import DiscreteModel, Sample, floating_type
from releg.functional.variables import checked_f, slope_of

F = Callable[[Tensor, Values], Tensor]


def evaluate(f: F, x: Tensor, z: Mapping[str, Tensor]) -> Tensor:
    """Checked f(x, z), (N,). f may change z in place."""
    value = f(x, copies(z, z))
    return checked_f(value, len(x), lambda row: {name: values[row].tolist() for name, values in z.items()})


@dataclass(frozen=True)
class LayerFunction:
    """f_l(z_l) = f(x, values before layer l, z_l, values after it simulated from these), row by row.

    Given the parents, E f_l is E f: so an estimator for one layer, applied to f_l and the layer's logits, is one for
    the whole model.
    """

    model: DiscreteModel
    f: F
    x: Tensor
    noise: Mapping[str, Tensor]
    sample: Sample
    value: Tensor  # (N,) f at the sample
    layer: Layer
    shared_noise: bool  # whether what follows has the noise of the sample, or new noise at every call
    generator: torch.Generator | None

    def __call__(self, z: Tensor) -> Tensor:
        """f_l at states (N, units), or at one-hot vectors; with a derivative only if z asks for it."""
        name, dtype = self.layer.name, floating_type(self.x)
        values = self.layer.narrow(z) if z.dim() == 3 else self.layer.show(z, dtype)
        if z.requires_grad:
            return self._with_slope(z, values)
        with torch.no_grad():
            if torch.equal(values, self.sample.z[name]):
                return self.value
            return self._simulate(values)

    def _simulate(self, values: Tensor) -> Tensor:
        name, noise = self.layer.name, self.noise
        if not self.shared_noise:
            noise = self.model.draw_noise(self.x, self.generator, after=name)
        z = {other: v.detach() for other, v in self.sample.z.items()}
        return evaluate(self.f, self.x, self.model.with_layer(name, values, self.x, z, noise))

    def _with_slope(self, z: Tensor, values: Tensor) -> Tensor:
        """f_l with its derivative w.r.t. z alone, not w.r.t. parameters inside f, which the sample's f provides."""
        if self.layer.states > 2 and not self.layer.one_hot:
            raise ValueError(ONE_HOT.format(layer=self.layer))
        value = self._simulate(values)
        if not value.requires_grad:
            return value
        slope = slope_of(value, z)
        return value.detach() + (slope * (z - z.detach())).flatten(1).sum(1)


ONE_HOT = (
    "{layer} has states, expected one-hot vectors, since the estimator differentiates f w.r.t. them; give the layer "
    "one_hot=True, and let f and the layers after it take vectors"
)
UNEQUAL = (
    "{what} of {rows} rows is another when half of the rows are repeated, expected every row to depend on its own x "
    "and z alone, since it is called with other numbers of rows than x has. Usual causes: len(x) or the size of the "
    "mini-batch in it, a mean or sum over rows, batch normalisation in training mode, dropout or other randomness. "
    "Divide by the number of rows after `gradient`, or leave this check out by check=False"
)


@torch.no_grad()
def check_rows(model: DiscreteModel, f: F, x: Tensor, before: Tensor, sample: Sample, value: Tensor) -> None:
    """Raise ValueError if x has changed, or if f or the logits of a layer with parents are others among other rows."""
    if bool(((x != before) & (before == before)).any()):
        raise ValueError(
            "f or a layer changes x in place, expected functions that leave it alone, since it is used again; write "
            "x = x - mean instead of x.sub_(mean), or begin with x = x.clone()"
        )
    rows = torch.arange(len(x) + (len(x) + 1) // 2, device=x.device) % len(x)
    z = {name: values.detach()[rows] for name, values in sample.z.items()}
    _check_equal("f", evaluate(f, x[rows], z), value[rows], len(x))
    for layer in model.discrete:
        if layer.parents:
            again = layer.narrow(layer.evaluate(x[rows], z))
            _check_equal(f"the function for the logits of {layer}", again, sample.logits[layer.name][rows], len(x))


def _check_equal(what: str, found: Tensor, expected: Tensor, rows: int) -> None:
    """Equal up to rounding, which sums of another order make."""
    finite = torch.isfinite(expected)
    found, expected = found[finite], expected[finite]
    tolerance = torch.finfo(expected.dtype).eps ** 0.5 * expected.abs().max().clamp(min=1)
    if bool(((found - expected).abs() > tolerance).any()):
        raise ValueError(UNEQUAL.format(what=what, rows=rows))

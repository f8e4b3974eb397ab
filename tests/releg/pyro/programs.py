"""A Pyro program with all that plates, masks and scales can do, and its exact bound."""

import itertools
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

ROWS = (-1.5, 0.3, 1.2)


class Mixed:
    """Bernoulli and categorical sites with Normals before, between and after them, in nested plates.

    Rows are sub-sampled, some are masked, and the likelihood counts 1.7 times.

    Args:
        estimators: by site of the guide, other than that of the loss.
    """

    def __init__(self, estimators: dict[str, str]) -> None:
        sizes: dict[str, Any] = {"g": 2, "a": 4, "c": 3, "k": (3, 2), "b": 3, "d": 3, "p": 6}
        self.parameters = {name: (0.7 * torch.randn(size)).requires_grad_() for name, size in sizes.items()}
        self.parameters["g"].data[1] = -3  # g is drawn once for all rows: a wide one would hide errors
        self.estimators = estimators

    def infer(self, name: str) -> Any:
        return {"releg": {"estimator": self.estimators[name]}} if name in self.estimators else {}

    def plates(self, x: Tensor, part: int) -> tuple[Any, Any]:
        return pyro.plate("data", len(x), part, dim=-1), pyro.plate("inner", 2, dim=-2)

    def guide(self, x: Tensor, part: int) -> None:
        at = self.parameters
        data, inner = self.plates(x, part)
        g = pyro.sample("g", dist.Normal(at["g"][0], at["g"][1].exp()))
        with data as rows:
            y: Any = x[rows]
            logits = torch.broadcast_tensors(at["a"][0] + at["a"][1] * y, at["a"][2] * g + at["a"][3])
            a = pyro.sample("a", dist.Bernoulli(logits=torch.stack(logits, -1)).to_event(1), infer=self.infer("a"))
            c = pyro.sample("c", dist.Normal(at["c"][0] + at["c"][1] * a.sum(-1), at["c"][2].exp()))
            k_logits = at["k"][:, 0] * c[..., None] + at["k"][:, 1] * a[..., :1]
            k = pyro.sample("k", dist.Categorical(logits=k_logits), infer=self.infer("k"))
            with inner, poutine.mask(mask=y < 1):
                b_logits = at["b"][0] + at["b"][1] * k + at["b"][2] * c
                b = pyro.sample("b", dist.Bernoulli(logits=b_logits), infer=self.infer("b"))
            loc = at["d"][0] + at["d"][1] * b.sum(-2, keepdim=True)
            pyro.sample("d", dist.LogNormal(loc, at["d"][2].exp()).mask(y > -1))

    def model(self, x: Tensor, part: int) -> None:
        p = self.parameters["p"]
        data, inner = self.plates(x, part)
        g = pyro.sample("g", dist.Normal(0, 1))
        with data as rows:
            y: Any = x[rows]
            k = pyro.sample("k", dist.Categorical(logits=torch.stack([p[0], p[1], p[1] - p[0]])))
            c = pyro.sample("c", dist.Normal(p[2] * k, 1))
            a = pyro.sample("a", dist.Bernoulli(logits=torch.stack([c, k + p[3]], -1)).to_event(1))
            with inner, poutine.mask(mask=y < 1):
                b = pyro.sample("b", dist.Bernoulli(logits=p[4] * c * k))
            d = pyro.sample("d", dist.LogNormal(a.sum(-1), 1).mask(y > -1))
            with poutine.scale(scale=1.7):
                loc = d.log() + p[5] * k + b.sum(-2, keepdim=True) * a[..., 0] + g
                pyro.sample("x", dist.Normal(loc, 1), obs=y)

    def bound(self, copies: int) -> Tensor:
        """The bound of so many copies of ROWS, by enumeration and by Gauss-Hermite nodes of the Normals."""
        x = torch.tensor(ROWS)
        table, weight = table_of_values({"g": 8, "c": 12, "d": 4})
        left = pyro.plate("table", len(weight), dim=-3)
        with Fixed(table):
            guide = poutine.trace(left(self.guide)).get_trace(x, len(x))
        model = poutine.trace(poutine.replay(left(self.model), trace=guide)).get_trace(x, len(x))
        guide.compute_log_prob()
        model.compute_log_prob()
        log_q = [guide.nodes[name]["unscaled_log_prob"].sum(-2) for name in "akb"]
        terms = [model.nodes[name]["log_prob"].sum(-2) for name in "ackbdx"]
        terms += [-guide.nodes[name]["log_prob"].sum(-2) for name in "ackbd"]
        of_rows = (torch.stack(log_q).sum(0).exp() * torch.stack(terms).sum(0)).sum(-1)
        of_g = (model.nodes["g"]["log_prob"] - guide.nodes["g"]["log_prob"])[:, 0, 0] / 48  # stands once per value
        return (weight * (copies * of_rows + of_g)).sum()


class Fixed(Messenger):
    """Gives the sites of a guide the values of a table, in which Normals and LogNormals have standard numbers."""

    def __init__(self, table: dict[str, Tensor]) -> None:
        super().__init__()
        self.table = table

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] not in self.table:
            return
        value, normal = self.table[msg["name"]], msg["fn"]
        while isinstance(normal, dist.MaskedDistribution):
            normal = normal.base_dist
        if isinstance(normal, (dist.Normal, dist.LogNormal)):
            value = normal.loc + normal.scale * value
        msg["value"] = (value.exp() if isinstance(normal, dist.LogNormal) else value).expand(msg["fn"].shape())


def table_of_values(nodes: dict[str, int]) -> tuple[dict[str, Tensor], Tensor]:
    """All combinations, on an axis left of two plates, with the weights of the nodes."""
    points, weights = zip(*(np.polynomial.hermite_e.hermegauss(count) for count in nodes.values()), strict=True)
    axes: list[Any] = [*points, (0, 1), (0, 1), (0, 1, 2), (0, 1), (0, 1)]
    rows = torch.tensor(list(itertools.product(*axes)))
    weight = torch.tensor([np.prod(each) for each in itertools.product(*(w / w.sum() for w in weights))])
    column = [rows[:, i, None, None] for i in range(8)]
    table = dict(zip(nodes, column[:3], strict=True))
    table["a"] = torch.stack([column[3], column[4]], -1)
    table["k"] = column[5].long()
    table["b"] = torch.cat([column[6], column[7]], 1)
    return table, weight.repeat_interleave(48)

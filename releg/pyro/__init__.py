"""A loss for Pyro's SVI that takes the gradients of discrete sites from the estimators of `releg.functional`.

>>> import pyro, torch
>>> import pyro.distributions as dist
>>> import releg.pyro
>>> def model(x):
...     with pyro.plate("data", len(x)):
...         z = pyro.sample("z", dist.Bernoulli(0.5))
...         pyro.sample("x", dist.Normal(2 * z, 1), obs=x)
>>> def guide(x):
...     logits = pyro.param("logits", lambda: torch.zeros(len(x)))
...     with pyro.plate("data", len(x)):
...         pyro.sample("z", dist.Bernoulli(logits=logits))
>>> pyro.clear_param_store()
>>> svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), loss=releg.pyro.ELBO("common_random_numbers"))
>>> _ = [svi.step(torch.tensor([0.0, 2.0])) for _ in range(200)]
>>> pyro.param("logits").sigmoid().round().tolist()
[0.0, 1.0]
"""

from releg.pyro.elbo import ELBO

__all__ = ["ELBO"]

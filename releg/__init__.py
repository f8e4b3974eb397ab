"""Low-variance gradients for discrete latent variables: the mathematics, without Lightning.

Names are loaded when they are used, so that `import releg` costs nothing:

- your own model: `Layer`, `Node`, `DiscreteModel`, `gradient`, or `functional` for one layer of plain logits;
- sigmoid belief nets: `SigmoidBeliefNet`, `load`, `save_model`, `bounds`, and every estimator by its class's name;
- `exact` is the oracle by enumeration.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from releg import bernoulli, bounds, categorical, discrete, exact, functional
    from releg.discrete import DiscreteModel, Layer, Node, bernoulli_node, gradient
    from releg.estimators.arm import Arm
    from releg.estimators.arms import Arms
    from releg.estimators.base import Estimate, Estimator
    from releg.estimators.bitflip import Bitflip
    from releg.estimators.common_random_numbers import CommonRandomNumbers
    from releg.estimators.disarm import DisArm
    from releg.estimators.double_control import DoubleControl
    from releg.estimators.gumbel_softmax import GumbelSoftmax
    from releg.estimators.leave_one_out import LeaveOneOut
    from releg.estimators.likelihood_ratio import LikelihoodRatio
    from releg.estimators.local_disarm import LocalDisArm
    from releg.estimators.local_expectation import LocalExpectation
    from releg.estimators.mu_prop import MuProp
    from releg.estimators.optimal_baseline import OptimalBaseline
    from releg.estimators.pruned import Pruned
    from releg.estimators.rebar import Rebar
    from releg.estimators.reinmax import ReinMax
    from releg.estimators.relax import Relax
    from releg.estimators.rodeo import Rodeo
    from releg.estimators.straight_through import StraightThrough
    from releg.estimators.ugc import Ugc
    from releg.estimators.vimco import Vimco
    from releg.sbn import SigmoidBeliefNet
    from releg.weights import load, save_model

    __version__: str

__all__ = [
    "Arm",
    "Arms",
    "Bitflip",
    "CommonRandomNumbers",
    "DisArm",
    "DiscreteModel",
    "DoubleControl",
    "Estimate",
    "Estimator",
    "GumbelSoftmax",
    "Layer",
    "LeaveOneOut",
    "LikelihoodRatio",
    "LocalDisArm",
    "LocalExpectation",
    "MuProp",
    "Node",
    "OptimalBaseline",
    "Pruned",
    "Rebar",
    "ReinMax",
    "Relax",
    "Rodeo",
    "SigmoidBeliefNet",
    "StraightThrough",
    "Ugc",
    "Vimco",
    "__version__",
    "bernoulli",
    "bernoulli_node",
    "bounds",
    "categorical",
    "discrete",
    "exact",
    "functional",
    "gradient",
    "load",
    "save_model",
]

_MODULES = ("bernoulli", "bounds", "categorical", "discrete", "exact", "functional")
_HOMES = {  # of names that are not estimators
    **dict.fromkeys(("DiscreteModel", "Layer", "Node", "bernoulli_node", "gradient"), "discrete"),
    **dict.fromkeys(("Estimate", "Estimator"), "estimators.base"),
    **dict.fromkeys(("load", "save_model"), "weights"),
    "SigmoidBeliefNet": "sbn",
}
_ESTIMATORS = {  # whose file's name is not the class's in lower case with underscores
    "DisArm": "disarm",
    "LocalDisArm": "local_disarm",
    "ReinMax": "reinmax",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used; the package keeps it."""
    if name not in __all__:
        raise AttributeError(f"module 'releg' has no attribute '{name}', expected one of {', '.join(__all__)}")
    if name == "__version__":
        value: Any = _version()
    elif name in _MODULES:
        value = import_module(f"releg.{name}")
    else:
        value = getattr(import_module(f"releg.{_HOMES.get(name) or _estimator_file(name)}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted({*globals(), *__all__})


def _estimator_file(name: str) -> str:
    from releg.naming.names import snake_case

    return f"estimators.{_ESTIMATORS.get(name) or snake_case(name)}"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("releg")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "unknown"

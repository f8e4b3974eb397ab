"""Low-variance gradients for discrete latent variables: the mathematics, without Lightning.

- your own model: `Layer`, `Node`, `Continuous`, `DiscreteModel`, `gradient`, or `functional` for one layer of logits;
- sigmoid belief nets: `SigmoidBeliefNet`, `load`, `save_model`, `bounds`, and every estimator by its class's name;
- `exact` is the oracle by enumeration.

Importing it needs torch alone; the engine that numba compiles is loaded when it is used.
"""

from importlib.metadata import PackageNotFoundError, version

from releg import bernoulli, bounds, categorical, discrete, exact, functional
from releg.discrete import Continuous, DiscreteModel, Layer, Node, bernoulli_node, gradient
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

try:
    __version__ = version("releg")
except PackageNotFoundError:  # run from a folder that was never installed
    __version__ = "unknown"

__all__ = [
    "Arm",
    "Arms",
    "Bitflip",
    "CommonRandomNumbers",
    "Continuous",
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

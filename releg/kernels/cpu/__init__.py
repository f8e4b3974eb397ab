"""The CPU engine: common random numbers at about the cost of a likelihood-ratio step.

The paper gives the cost as one simulation per unit. For sigmoid layers most of that is not needed. Take layer l,
one row of the batch, and unit i. Let s = +1 if the unit is 0 and s = -1 if it is 1, so that a flip changes it by s. One
of the two clamped simulations of Algorithm 1 is the sample itself; only the flipped one is new.

**Direct term.** The flip adds d_j = s W_ij to the logit r_j of every target j in p(z[l-1] | z[l]). Hence

    change of log p(z[l-1] | z[l]) = s (z[l-1] @ W)_i - sum_j [softplus(r_j + d_j) - softplus(r_j)]

    softplus(r + d) - softplus(r) = log(sigmoid(-r) + sigmoid(r) exp(d))
                                  = d / 2 + log cosh(w / 2) + log(1 + s c T),    c = tanh(r / 2), T = tanh(w / 2)

The sums of w / 2 and of log cosh(w / 2) depend on the weights alone. The rest is a matrix product in which the log of a
product replaces the sum: one fused multiply-add and one multiplication per factor 1 + s c T, no exponential. A
product is cut where sum |w| could take it out of range; its exponent is set aside, and one logarithm is taken at the
end. A weight beyond STEEP makes 1 - |c T| inexact; it uses the first form, sigmoid(-r) + sigmoid(r) exp(d).

**Who changes below.** Unit k of the next layer is on if its noise u_k < sigmoid(a_k), that is logit(u_k) < a_k. Its
margin is |logit(u_k) - a_k|. The flip adds s V_ki to a_k, so unit k changes if s_k s V_ki exceeds its margin. One
comparison per pair (i, k) decides; only units whose margin is below their largest weight need it. Usually none to a
few change, since the noise is common. The change of log q(z[l+1] | z[l]) is the direct term's formula again, plus a
term per changed unit.

**Only the changed set matters further down.** What happens below depends on the set C of changed units, not on i. If C
is empty, nothing more changes. If C = {k}, it is what flipping k itself does, which is computed anyway. Larger sets
recur: each is scored once. Flipping C, everything above it left as it is, changes f by G_l(C), less the change of log
q(z[l] | z[l-1]). With d = sum over C of s * weights,

    G_l(C) = sum s (z[l-1] @ W + r)   - sum_j log(sigmoid(-r_j) + sigmoid(r_j) exp(d_j))        log p, r its logits
           - sum s (z[l+1] @ V)       + sum_k log(sigmoid(-a_k) + sigmoid(a_k) exp(d_k))        -log q(z[l+1] | z[l])
           + sum over changed k of s_k (sum over C of s (W_ik - V_ki) - a_k) + G_(l+1)(changed k)

exp(d) is the product of the members' exp(s w). Unit k changes with C if s_k d_k exceeds its margin, that is if the
exp(d_k) of the second line lies beyond exp(s_k margin): the products tell, and no logit is added up for it.

The result is exact: it equals the dense simulation up to rounding. layout says where everything is in memory; tables
holds what depends on the weights or on one row alone; terms has the direct terms; walk follows the sets down and adds
up on the way back; loops and vector are the arithmetic below them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.kernels.cpu.layout import Shape, Workspace
from releg.kernels.cpu.threads import run_team
from releg.sbn import SigmoidBeliefNet, Trajectory

MOST_KEPT = 4  # workspaces that wait for the next call

_free: dict[Shape, Workspace] = {}  # a workspace is taken out while it is in use, so that threads never share one


def flip_differences(model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor]) -> list[Tensor]:
    """f1 - f0 of every unit on the CPU, (N, H) per layer, for float32 and float64, with as many threads as torch."""
    r, a = ([logits.detach() for logits in values] for values in (generative_logits, path.logits))
    generative, inference = (
        [linear.weight.detach() for linear in linears] for linears in (model.generative, model.inference)
    )
    flat = cpu_flips(path.x, path.z, path.noise, a, r, generative, inference)
    pieces = flat.split([len(path.x) * size for size in model.layers])
    return [piece.view(-1, size) for piece, size in zip(pieces, model.layers, strict=True)]


@torch.library.custom_op("releg::cpu_flips", mutates_args=())
def cpu_flips(
    x: Tensor,
    z: Sequence[Tensor],
    noise: Sequence[Tensor],
    logits: Sequence[Tensor],
    generative_logits: Sequence[Tensor],
    generative: Sequence[Tensor],
    inference: Sequence[Tensor],
) -> Tensor:
    """f1 - f0 of every unit, all layers in one row of numbers, (sum of N * H,): an operator's answers share no memory.

    Args:
        x: (N, data_size), binary.
        z: (N, H) per layer, binary.
        noise: (N, H) per layer.
        logits: (N, H) per layer, of q(z[l] | z[l-1]).
        generative_logits: (N, H) of p(x | z[0]), ..., p(z[-1]).
        generative: weights (targets, units), of p.
        inference: weights (targets, units), of q.
    """
    rows_of = [*z, *noise, *logits, *generative_logits]
    _check_same_type(x, [*rows_of, *generative, *inference])
    rows, layers = len(x), tuple(values.shape[1] for values in z)
    threads = max(1, min(torch.get_num_threads(), rows))
    workspace = _take_workspace(Shape(x.shape[1], layers, x.dtype, rows, threads))
    read = workspace.set_weights(generative, inference), workspace.set_rows(x, z, noise, logits, generative_logits)
    out = x.new_empty(sum(values.numel() for values in z))
    _run(workspace, 0, out, 0)
    _run(workspace, 1, out, rows)
    del read  # what the kernel has read may go now, and not before
    _free[workspace.shape] = workspace
    return out


@cpu_flips.register_fake
def _(x: Tensor, z: Sequence[Tensor], *others: Sequence[Tensor]) -> Tensor:
    return x.new_empty(sum(values.numel() for values in z))


def _take_workspace(shape: Shape) -> Workspace:
    """One that is free, else a new one; of those that wait, the oldest goes if there are too many."""
    workspace = _free.pop(shape, None)
    while len(_free) >= MOST_KEPT:
        _free.pop(next(iter(_free)), None)
    return workspace or Workspace(shape)


def _check_same_type(x: Tensor, others: Sequence[Tensor]) -> None:
    """Raise ValueError unless all tensors are like x: the kernel reads their memory as numbers of that type."""
    for tensor in others:
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise ValueError(
                f"the CPU kernel got {tensor.dtype} on {tensor.device}, expected {x.dtype} on {x.device} like x; "
                "call the estimator outside torch.autocast, with model and noise of one type"
            )


def _run(workspace: Workspace, phase: int, out: Tensor, rows: int) -> None:
    """Run one phase of the kernel, shared among the workers."""
    from releg.kernels.cpu.entry import entry_for  # imports numba, which takes a second

    argument = workspace.prepare_call(phase, out, rows)
    run_team(entry_for(workspace.number.name), argument, workspace.shape.workers)

"""All engines answer the numbers of the dense reference, whatever the weights and shapes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from releg.kernels import ENGINES, batched, check_engine, cpu, flip_differences
from releg.sbn import SigmoidBeliefNet, Trajectory
from tests.releg.helpers import random_model, random_x, simulate

CPU = torch.zeros(1)
FAST = [name for name, engine in ENGINES.items() if name != "dense" and engine.runs_on(CPU)]


def answers(name: str, model: SigmoidBeliefNet, rows: int, seed: int) -> list[Tensor]:
    path, logits = simulate(model, rows, seed)
    return flip_differences(name, model, path, logits)


def assert_agree(left: list[Tensor], right: list[Tensor], tolerance: float) -> None:
    for layer, (a, b) in enumerate(zip(left, right, strict=True)):
        scale = max(1.0, b.abs().max().item()) if b.numel() else 1.0
        assert (a - b).abs().max().item() <= tolerance * scale if b.numel() else a.shape == b.shape, layer


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("layers", [[5], [7, 3], [4, 1, 6], [3, 5, 2, 4], [2, 1, 3, 1, 2, 4]])
@pytest.mark.parametrize("name", FAST)
def test_engine_equals_the_reference_in_float64(name: str, layers: list[int], scale: float) -> None:
    model = random_model(9, layers, scale, seed=len(layers))
    assert_agree(answers(name, model, 4, 1), answers("dense", model, 4, 1), 1e-9)


@settings(max_examples=40)
@given(
    data_size=st.integers(1, 40),
    layers=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    rows=st.integers(1, 5),
    scale=st.sampled_from([0.1, 1.0, 3.0, 10.0]),
    seed=st.integers(0, 2**31),
)
def test_engines_equal_the_reference_for_any_shape(
    data_size: int, layers: list[int], rows: int, scale: float, seed: int
) -> None:
    model = random_model(data_size, layers, scale, seed)
    expected = answers("dense", model, rows, seed)
    for name in FAST:
        assert_agree(answers(name, model, rows, seed), expected, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FAST)
def test_nothing_changes_where_weights_are_zero_and_noise_lies_on_the_threshold(name: str, dtype: torch.dtype) -> None:
    model = random_model(5, [4, 3, 2], 0.0, 0, dtype)
    path = model.infer(random_x(3, 5, 0, dtype), [torch.full((3, size), 0.5, dtype=dtype) for size in model.layers])
    found = flip_differences(name, model, path, model.generative_logits(path.z))
    assert_agree(found, [torch.zeros_like(z) for z in path.z], 1e-9 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("layers", [[1000], [1000, 1], [1, 1000], [64, 65, 63]])
@pytest.mark.parametrize("rows", [1, 3])
def test_wide_layers_and_single_rows(layers: list[int], rows: int) -> None:
    model = random_model(20, layers, 0.2, seed=2)
    assert_agree(answers("cpu", model, rows, 2), answers("batched", model, rows, 2), 1e-9)


def away_from_ties(model: SigmoidBeliefNet, rows: int, seed: int) -> tuple[Trajectory, list[Tensor]]:
    """A path in float32 whose noise is nowhere near a mean that a unit can have after the flip of one unit above it.

    Checked for flips of one unit; larger sets are the same in both engines, and the seeds are fixed.
    """
    path, logits = simulate(model, rows, seed)
    for layer in range(1, len(model.layers)):
        sign = 1 - 2 * path.z[layer - 1]
        after = path.logits[layer].detach()[:, None] + sign[..., None] * model.inference[layer].weight.T
        assert (torch.sigmoid(after) - path.noise[layer][:, None]).abs().min() > 1e-7
    return path, logits


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("layers", [[30, 20], [20, 20, 20], [16, 8, 4, 2]])
def test_float32_agrees_to_a_thousandth_away_from_ties(layers: list[int], scale: float) -> None:
    model = random_model(50, layers, scale, seed=7, dtype=torch.float32)
    path, logits = away_from_ties(model, 5, 7)
    for a, b in zip(*(flip_differences(name, model, path, logits) for name in FAST), strict=True):
        assert (a - b).abs().max() < 1e-3 * max(1.0, scale)  # float32 resolves 6e-8 of sums that grow with the weights


def test_same_answer_for_one_and_two_threads_bit_for_bit() -> None:
    model = random_model(60, [40, 30, 20], 0.5, seed=3, dtype=torch.float32)
    path, logits = simulate(model, 100, 3)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(cpu.flip_differences(model, path, logits))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_rows_do_not_depend_on_the_rows_beside_them() -> None:
    model = random_model(20, [10, 8], 1.0, seed=4)
    path, logits = simulate(model, 700, 4)  # many groups of rows
    whole = cpu.flip_differences(model, path, logits)
    few = Trajectory(path.x[650:], path.centred[650:], [n[650:] for n in path.noise], [a[650:] for a in path.logits],
               [z[650:] for z in path.z])  # fmt: skip
    part = cpu.flip_differences(model, few, [r[650:] for r in logits])
    assert all(torch.equal(a[650:], b) for a, b in zip(whole, part, strict=True))


def test_nothing_is_carried_over_from_one_call_to_the_next() -> None:
    models = [random_model(12, [6, 5], 1.0, seed=5), random_model(12, [6, 5], 3.0, seed=6), random_model(7, [9], 1.0)]
    paths = [simulate(model, 4, 5) for model in models]
    first = [cpu.flip_differences(model, *parts) for model, parts in zip(models, paths, strict=True)]
    cpu._free.clear()
    again = [cpu.flip_differences(model, *parts) for model, parts in zip(models, paths, strict=True)]
    for left, right in zip(first, again, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("memory_mib", [1e-9, 1e-3, 0.1, 4096.0])
def test_batched_answers_do_not_depend_on_the_memory_bound(memory_mib: float) -> None:
    model = random_model(15, [9, 7, 5], 1.0, seed=8)
    path, logits = simulate(model, 6, 8)
    bounded = batched.flip_differences(model, path, logits, memory_mib)
    assert_agree(bounded, batched.flip_differences(model, path, logits), 1e-12)


def test_auto_takes_the_first_engine_that_runs_on_the_tensors() -> None:
    for x, expected in {
        torch.zeros(1): "cpu",
        torch.zeros(1, dtype=torch.bfloat16): "batched",
        torch.zeros(1, device="meta"): "batched",
    }.items():
        assert next(name for name, engine in ENGINES.items() if engine.runs_on(x)) == expected


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="engine is 'fast', expected one of auto, cpu, "):
        check_engine("fast")

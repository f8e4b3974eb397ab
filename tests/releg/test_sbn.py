import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from releg import exact
from releg.sbn import SigmoidBeliefNet
from tests.releg.helpers import largest_z, random_model, random_x

shapes = st.tuples(st.integers(1, 9), st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 7))


def test_names_print_as_the_paper_writes_them() -> None:
    assert str(SigmoidBeliefNet(784, [256, 128, 64, 32])) == "SBN(32-64-128-256)"
    assert SigmoidBeliefNet(784, [200, 200]).architecture == "200-200"


def test_256_units_of_the_paper_architecture_touch_the_data() -> None:
    model = SigmoidBeliefNet(784, [256, 128, 64, 32])
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters() if name.endswith("weight")}
    assert shapes["inference.0.weight"] == (256, 784)
    assert shapes["generative.0.weight"] == (784, 256)
    assert shapes["inference.3.weight"] == (32, 64)
    assert model.prior_logits.shape == (32,)


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_any_depth_width_and_batch_simulates_and_scores(shape: tuple[int, list[int], int]) -> None:
    data_size, layers, rows = shape
    model, x = random_model(data_size, layers), random_x(rows, data_size)
    path = model.infer(x, model.draw_noise(x))
    assert [z.shape for z in path.z] == [(rows, size) for size in layers]
    assert all(bool(((z == 0) | (z == 1)).all()) for z in path.z)
    assert model.log_p(x, path.z).shape == model.log_q(x, path.z).shape == (rows,)
    torch.testing.assert_close(torch.stack(path.log_q_terms()).sum(0), model.log_q(x, path.z))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(1, 2), min_size=1, max_size=4))
def test_joint_and_inference_probabilities_add_up_to_one(data_size: int, layers: list[int]) -> None:
    model = random_model(data_size, layers, scale=2.0)
    x = exact.states(data_size).to(model.mean)
    log_p, log_q = exact.log_tables(model, x)
    torch.testing.assert_close(log_p.exp().sum(), torch.ones((), dtype=torch.float64))
    torch.testing.assert_close(log_q.exp().sum(1), torch.ones(len(x), dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_probabilities_stay_finite_at_logits_of_ten_thousand(dtype: torch.dtype) -> None:
    model = random_model(5, [4, 3], scale=1e4, dtype=dtype)
    x = random_x(6, 5, dtype=dtype)
    path = model.infer(x, model.draw_noise(x))
    assert bool(torch.isfinite(model.log_p(x, path.z)).all())
    assert bool(torch.isfinite(model.log_q(x, path.z)).all())


def test_given_noise_everything_is_deterministic_and_samples_follow_q() -> None:
    model, x = random_model(3, [2, 2], seed=4), random_x(1, 3, seed=4).repeat(40_000, 1)
    noise = model.draw_noise(x, torch.Generator().manual_seed(0))
    path = model.infer(x, noise)
    assert all(bool((a == b).all()) for a, b in zip(path.z, model.infer(x, noise).z, strict=True))
    code = torch.cat(path.z, dim=1).long() @ (2 ** torch.arange(4))
    _, log_q = exact.log_tables(model, x[:1])
    expected = log_q[0].exp() * len(x)
    counts = torch.bincount(code, minlength=16)
    z_scores = (counts - expected) / expected.clamp(min=1e-9).sqrt()
    assert z_scores.abs().max() < largest_z(16)


def test_ancestral_samples_follow_p() -> None:
    model = random_model(2, [2, 1], seed=5)
    rows = 40_000
    generator = torch.Generator().manual_seed(1)
    noise = model.draw_noise(torch.zeros(rows, 2), generator)
    x, z = model.ancestral(noise, torch.rand(rows, 2, generator=generator, dtype=torch.float64))
    code = torch.cat([x, *z], dim=1).long() @ (2 ** torch.arange(5))
    log_p, _ = exact.log_tables(model, exact.states(2).to(model.mean))
    expected = log_p.exp().T.reshape(-1) * rows  # x counts fastest in the code
    z_scores = (torch.bincount(code, minlength=32) - expected) / expected.clamp(min=1e-9).sqrt()
    assert z_scores.abs().max() < largest_z(32)


def test_gradients_of_the_log_probabilities_agree_with_finite_differences() -> None:
    model, x = random_model(4, [3, 2], seed=1), random_x(3, 4, seed=1)
    z = [layer.detach() for layer in model.infer(x, model.draw_noise(x)).z]
    parameters = tuple(model.parameters())

    def log_ratio(*values: torch.Tensor) -> torch.Tensor:
        named = dict(zip([name for name, _ in model.named_parameters()], values, strict=True))
        return torch.func.functional_call(_Score(model), {f"model.{k}": v for k, v in named.items()}, (x, z))

    assert torch.autograd.gradcheck(log_ratio, parameters)


class _Score(torch.nn.Module):
    def __init__(self, model: SigmoidBeliefNet) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, z: list[torch.Tensor]) -> torch.Tensor:
        return self.model.log_p(x, z) - self.model.log_q(x, z)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SigmoidBeliefNet(0, [3]), "data_size is 0, expected at least 1"),
        (lambda: SigmoidBeliefNet(4, []), "layers is [], expected one or more positive sizes"),
        (lambda: SigmoidBeliefNet(4, [3, 0]), "layers is [3, 0], expected one or more positive sizes"),
        (lambda: SigmoidBeliefNet(4, [3], torch.zeros(5)), "mean has shape (5,), expected (4,)"),
        (lambda: random_model(4, [3]).check_input(random_x(2, 5)), "x has shape (2, 5), expected (N, 4)"),
        (lambda: random_model(4, [3]).check_input(random_x(2, 4).float()), "x is torch.float32, expected torch.float"),
        (lambda: random_model(4, [3]).check_input(random_x(2, 4) + 0.5), "x has values other than 0 and 1"),
        (lambda: random_model(4, [3]).infer(random_x(2, 4), []), "noise has 0 layers, expected 1"),
        (
            lambda: random_model(4, [3, 2]).infer(random_x(2, 4), [random_x(2, 3), random_x(2, 3)]),
            "noise[1] has shape (2, 3), expected (2, 2); draw it with model.draw_noise(x)",
        ),
        (
            lambda: random_model(4, [3]).infer(random_x(2, 4), [random_x(2, 3).float()]),
            "noise[0] is torch.float32 on cpu, expected torch.float64 on cpu like x; draw it with model.draw_noise(x)",
        ),
    ],
)
def test_bad_input_is_refused_with_expected_got_and_fix(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below, literally
        call()
    assert message in str(error.value)

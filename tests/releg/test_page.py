"""The examples of the library's page do what it says, and its table has the numbers of the results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.distributions import Bernoulli

import releg
from releg.examples.three_layer_vae import ThreeLayerVAE
from releg.records.file_names import LIBRARY, PYRO
from releg.report.library import best
from releg.report.numbers import plain
from tests.environment import ROOT
from tests.pages import blocks, link_weights, section


def run(title: str, number: int) -> dict[str, object]:
    """The names that an example of the page leaves behind."""
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(blocks(section("releg", title), "python")[number], names)
    return names


def test_the_training_loop_has_twenty_lines_and_trains() -> None:
    loop = blocks(section("releg", "From logits to a training loop"), "python")[0]
    assert len([line for line in loop.splitlines() if line.strip()]) <= 20
    names = run("From logits to a training loop", 0)
    x, value = names["x"], names["value"]
    assert isinstance(x, torch.Tensor)
    assert isinstance(value, torch.Tensor)
    entropy_of_pixels = -Bernoulli(probs=x.mean(0)).entropy().sum()  # what the best decoder without z reaches
    assert value.mean() > entropy_of_pixels - 1
    assert value.mean() > 20 * torch.tensor(0.5).log() + 2  # what it starts from


def test_the_example_of_rodeo_trains_its_control() -> None:
    control = run("From logits to a training loop", 1)["control"]
    assert isinstance(control, releg.functional.SteinControl)
    assert control.alpha != 0


def test_the_vae_on_the_page_is_the_example() -> None:
    source = (ROOT / "releg" / "examples" / "three_layer_vae.py").read_text(encoding="utf-8")
    shown = blocks(section("releg", "Several layers, and any graph"), "python")[0]
    assert shown.startswith(source[source.index("from itertools") :])


@pytest.mark.parametrize("flips", [None, 2])
def test_every_parameter_of_the_vae_gets_a_gradient_and_it_learns(flips: int | None) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        vae, x = ThreeLayerVAE(torch.full((12,), 0.5), (6, 4, 3)), (torch.rand(40, 12) < 0.1).float()
        optimiser = torch.optim.Adam(vae.parameters(), lr=0.03)
        values = []
        for _ in range(30):
            optimiser.zero_grad()
            answer = releg.gradient(vae.model, vae.elbo, x, flips=flips)
            answer.surrogate.mean().backward()
            assert all(parameter.grad is not None for parameter in vae.parameters())
            optimiser.step()
            values.append(answer.f.mean().item())
    assert values[-1] > values[0] + 2


def test_the_example_of_a_trained_model_loads_one_and_saves_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    link_weights(tmp_path)
    bound = run("A trained model in one line", 0)["bound"]
    assert isinstance(bound, torch.Tensor)
    assert bound > -200  # without training it is 784 log 0.5 = -543
    assert releg.load("net.safetensors").layers == [200, 200]


def test_the_times_and_the_order_of_estimators_are_those_of_the_results() -> None:
    library, pyro = (json.loads((ROOT / "results" / name).read_bytes())["models"] for name in (LIBRARY, PYRO))
    text, of_air = section("releg", "Which estimator to use, and what it costs"), pyro["air"]["times"]
    for words, way, loss in (
        ("`common_random_numbers`", "all_flips", '`ELBO("common_random_numbers")`'),
        ("the same with `flips=8`", "eight_flips", ""),
        ("`disarm`", "disarm", '`ELBO("disarm")`'),
        ("`leave_one_out`, 2 samples", "leave_one_out", '`ELBO("leave_one_out")`'),
        ("`reinmax`", "reinmax", ""),
    ):
        (row,) = [row for row in text.splitlines() if f"| {words} |" in row]
        times = [plain(library[model]["times"][way]) for model in ("sbn", "vae", "categorical")]
        assert row.endswith(f"| {' | '.join(times)} | {plain(of_air[loss]) + ' ' if loss else ''}|")
    assert f"`TraceGraph_ELBO` takes {plain(of_air['`TraceGraph_ELBO`'])}." in text
    behind = []
    for model in (library["vae"], library["categorical"]):
        others = ("eight_flips", "disarm", "leave_one_out")
        assert model["variances"]["all_flips"] < 0.5 * min(model["variances"][way] for way in others)
        ends = {way: best(model, way)["points"][-1]["negative_elbo"] for way in model["variances"]}
        behind.append(round(ends["all_flips"] - min(ends[way] for way in others)))
    assert f"all flips are {behind[0]} and {behind[1]}\nnats behind the best of the unbiased ones" in text
    ends = {r["rate"]: r["points"][-1] for r in library["categorical"]["training"] if r["way"] == "disarm"}
    assert [rate for rate, end in ends.items() if end["negative_elbo"] < 190] == [min(ends)]  # it begins at 204

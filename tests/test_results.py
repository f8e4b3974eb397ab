"""The files in results/ belong together, and pages written by hand state their numbers, in whatever words.

After results were published, a failure names each number that a page should state, and each that it should not.
"""

import csv
import json
import math
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lightning_modules import CONFIGS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line import verify
from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.shipped_estimators import shipped_names
from releg.records.file_names import CURVES, TRIALS
from releg.records.names import BUDGETS
from releg.records.runs import read_runs
from releg.report.__main__ import main as write_everything
from releg.report.bench import by_ways, fastest
from releg.report.compare import paired_ratio, work
from releg.report.numbers import power_of_ten
from releg.report.table1 import gaps, longer_rows, short_table
from releg.report.variance import at_shared_weights, largest, lr_to_crn, measured_variances, tables
from tests.environment import ROOT
from tests.pages import PAGES, broken_links, numbers, section

RESULTS = ROOT / "results"
TEXTS = (".md", ".csv", ".json")  # the bytes of a figure depend on the versions of what draws it
Facts = dict[str, str]  # a number as a page states it, by what it is


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_bytes())


def nats(value: float) -> str:
    return f"{abs(value):.2f}"


def ends(values: list[float], digits: int, what: str) -> Facts:
    """The lowest and the highest."""
    return {f"{word} {what}": f"{end(values):.{digits}f}" for word, end in (("lowest", min), ("highest", max))}


# --- what the sections state: every number with a decimal point or a comma, and the others that are given here


def of_table() -> Facts:
    runs, longer = read_runs(RESULTS), read_runs(RESULTS / "converged")
    with (RESULTS / "paper_protocol.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    (rate,) = {run["config"]["model.optimizer.init_args.lr"] for run in read("paper_protocol.json")["unfinished"]}
    facts = {"runs of the table": str(len(runs)), "rate of the paper's protocol": str(rate)}
    for name, steps in (("standard", runs), ("converged", longer), ("paper", [])):
        facts[f"steps of {name}"] = f"{budget_steps(name)[-1]:,}"
        assert {run.steps for run in steps} <= {budget_steps(name)[-1]}, f"{name} was published with other steps"
    facts["minutes of all runs"] = f"{sum(run.result['training_seconds'] for run in runs) / 60:.0f}"
    facts["minutes of the fastest"] = f"{sum(row['minutes'] for row in read('table1.json')):.0f}"
    for name in ("lr", "crn"):
        own = [row for row in rows if row["estimator"] == name]
        facts[f"steps of {name} with the paper's protocol"] = f"{max(int(row['step']) for row in own):,}"
        facts[f"best of {name} with it"] = nats(max(float(row["value"]) for row in own))
    return facts | {"what chance explains": by_chance()["of two bounds together"]}


def of_comparing() -> Facts:
    redrawn, once = (trial_of("200-200", "crn", 20_000, bits) for bits in ("dynamic", "fixed"))
    return {"training bits drawn once": f"{redrawn - once:.1f}"}


def of_cost() -> Facts:
    ours = [fastest(ways) for ways in by_ways(read("bench.json")["steps"])]
    minutes = {(row["architecture"], row["estimator"]): row["minutes"] for row in read("table1.json")}
    facts = ends([minutes[net, "crn"] / minutes[net, "lr"] for net, _ in minutes], 1, "over a whole training")
    facts |= ends([row["ratio_to"]["jax"][0] for row in ours if row["estimator"] == "lr"], 1, "LR to JAX's")
    for threads in (1, 2):
        crn = [row["ratio_to"]["lr"][0] for row in ours if (row["estimator"], row["threads"]) == ("crn", threads)]
        facts |= ends(crn, 2, f"with {threads} threads")
    racers = read("race_runs.json")["runs"]
    (steps,) = {racer["config"]["trainer.max_steps"] for racer in racers}
    return facts | {"racers": str(len(racers)), "steps of the race": f"{steps:,}"}


def by_chance() -> Facts:
    known = [row["test_nll_sd"] for row in read("table1.json") if row["test_nll_sd"] is not None]
    of_seeds = math.sqrt(statistics.fmean(sd**2 for sd in known))
    of_bits = [statistics.stdev(cell["bounds"]) for cell in read("test_bits.json")["cells"]]
    three_and_one = 2 * of_seeds * math.sqrt(1 / 3 + 1)
    together = math.hypot(three_and_one, 2 * math.sqrt(2) * max(of_bits))
    return {
        "deviation over seeds": nats(of_seeds),
        "three seeds against one": nats(three_and_one),
        "of two bounds together": f"{math.ceil(10 * together) / 10:.1f}",
        **ends(of_bits, 2, "over test bits"),
    }


def of_trials() -> Facts:
    steps = 200_000
    facts = {"rate": "0.003", "steps": f"{steps:,}", "warm-up": f"{20_000:,}"}
    for name in ("lr", "crn"):
        facts[f"{name} gains by a held rate"] = f"{best_held(name) - trial_of('200-200', name, 20_000):.1f}"
    cold = {
        (trial["architecture"], trial["estimator"]): trial_of(trial["architecture"], trial["estimator"], 20_000)
        - trial_of(trial["architecture"], trial["estimator"], 0)
        for trial in straight(warmup=0)
    }
    helped = [("200-200-200", "crn"), ("32-64-128-256", "lr"), ("32-64-128-256", "crn")]
    facts |= {f"warm-up, {net} {name}": nats(cold.pop((net, name))) for net, name in helped}
    facts |= ends([-nats_lost for nats_lost in cold.values()], 2, "that a warm-up costs")
    return facts | of_short_trials()


def of_short_trials() -> Facts:
    """Those of the budget `quick` on three layers: what a slow warm-up gains, and half of the rate."""
    short = {"steps": 60_000, "architecture": "200-200-200", "shape": "hold_then_linear"}
    bounds = {
        (trial["estimator"], trial["rate"], trial["warmup"]): float(trial["val/elbo"])
        for trial in read(TRIALS)
        if short.items() <= trial.items()
    }
    fast = bounds["crn", 0.01, 2_000]
    return {
        "short steps": "60,000",
        "slow warm-up": "10,000",
        "fast warm-up": "2,000",
        "rate of CRN": "0.01",
        "CRN, slow": nats(bounds["crn", 0.01, 10_000] - fast),
        "CRN, slow, half of the rate": nats(bounds["crn", 0.005, 10_000] - fast),
        "LR, slow": nats(bounds["lr", 0.003, 10_000] - bounds["lr", 0.003, 2_000]),
    }


def straight(**wanted: Any) -> list[dict[str, Any]]:
    """The trials of 200,000 steps with a rate that falls in a straight line from 0.003."""
    wanted = {"steps": 200_000, "rate": 0.003, "shape": "linear", "binarization": "dynamic"} | wanted
    return [trial for trial in read(TRIALS) if wanted.items() <= trial.items()]


def trial_of(net: str, estimator: str, warmup: int, bits: str = "dynamic") -> float:
    """The validation bound of one of them."""
    (trial,) = straight(architecture=net, estimator=estimator, warmup=warmup, binarization=bits)
    return float(trial["val/elbo"])


def best_held(estimator: str) -> float:
    wanted = {"architecture": "200-200", "estimator": estimator, "steps": 200_000, "shape": "hold_then_linear"}
    return max(float(trial["val/elbo"]) for trial in read(TRIALS) if wanted.items() <= trial.items())


def budget_steps(name: str) -> list[int]:
    """The steps of a budget's runs; they may differ from net to net."""
    files = [CONFIGS / "budget" / f"{name}.yaml", *(CONFIGS / "budget" / name).glob("*.yaml")]
    return sorted({read_yaml(file).get("trainer", {}).get("max_steps") for file in files} - {None})


def of_reproducing() -> Facts:
    steps = {f"steps of {name}, {end}": f"{budget_steps(name)[end]:,}" for name in BUDGETS[1:] for end in (0, -1)}
    python = re.findall(r'requires-python = ">=(3\.\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    ((first, after),) = python
    above = max(row["difference"] for row in read("quick/table1.json") if row["estimator"] == "crn")
    steps |= {"first Python": first, "last Python": f"3.{int(after) - 1}", "images of Figure 1": "50,000"}
    return steps | {"how far CRN of quick is above the paper": nats(above)}


def of_first_page() -> Facts:
    known = tables(at_shared_weights(measured_variances(RESULTS)))
    at = largest(known)
    ratios = [lr_to_crn(known[at], layer, "total", "total").value for layer in (1, 2, 3, 4)]
    crn = [fastest(ways) for ways in by_ways(read("bench.json")["steps"])]
    return {
        **ends([row["ratio_to"]["lr"][0] for row in crn if row["estimator"] == "crn"], 1, "cost of a step of CRN"),
        "steps of the table": f"{budget_steps('standard')[-1]:,}",
        "steps of converged": f"{budget_steps('converged')[-1]:,}",
        "steps before Figure 1's measurement": f"{at.step:,}",
        "images of it": f"{at.images:,}",
        "samples of each": "1,000",
        "lowest ratio": power_of_ten(math.floor(math.log10(min(ratios)))),
        "highest ratio": power_of_ten(math.ceil(math.log10(max(ratios)))),
        "lowest ratio of the paper": power_of_ten(5),
        "highest ratio of the paper": power_of_ten(8),
        "estimators compared": str(len(compared())),
    }


STATED: dict[tuple[str, str], Callable[[], Facts]] = {
    ("", ""): of_first_page,
    ("", "Reproduce it"): of_reproducing,
    ("results", "Table 1: how it was trained, and what it shows"): of_table,
    ("results", "What to know before you compare"): of_comparing,
    ("results", "What a step costs, and which estimator gets there first"): of_cost,
    ("results", "How much two bounds can differ by chance"): by_chance,
    ("results", "What the trials of the learning rate show"): of_trials,
}


@pytest.mark.parametrize("place", STATED, ids=str)
def test_a_section_states_the_numbers_of_the_files_and_no_others(place: tuple[str, str]) -> None:
    text, facts = section(*place), STATED[place]()
    absent = {what: number for what, number in facts.items() if not re.search(rf"\b{re.escape(number)}\b", text)}
    wrong = [f"add {number}: {what}" for what, number in absent.items()]
    wrong += [f"{number} is no number of the files" for number in sorted(numbers(text) - set(facts.values()))]
    assert not wrong, "\n".join([f"{place[0] or '.'}/README.md, {place[1] or 'above the first title'}:", *wrong])


def test_crn_beats_lr_wherever_both_were_trained_and_both_reach_the_papers_bounds_in_their_steps() -> None:
    assert min(gaps(read("table1.json"), "test_nll_mean").values()) > 0
    assert min(gaps(read("quick/table1.json"), "test_nll_mean").values()) > 0
    assert min(gaps(longer_rows(RESULTS), "test_nll_mean").values()) > 0
    reached = {(row["estimator"], row["architecture"]) for row in read("table1.json") if row["difference"] < 0}
    reached |= {(row["estimator"], row["architecture"]) for row in longer_rows(RESULTS) if row["difference"] < 0}
    assert reached == {(name, net) for net, bounds in read("paper.json")["test_nll"].items() for name in bounds}
    assert all(row["difference"] < 0 for row in read("table1.json") if row["estimator"] == "crn")


def test_in_trials_the_rate_is_held_and_only_crn_gains_by_a_higher_one_in_shorter_runs() -> None:
    trials = [trial for trial in read(TRIALS) if trial["architecture"] == "200-200"]
    for steps in {trial["steps"] for trial in trials}:
        for name in ("lr", "crn"):
            tried = [trial for trial in trials if (trial["steps"], trial["estimator"]) == (steps, name)]
            best = max(tried, key=lambda trial: float(trial["val/elbo"]))
            assert best["shape"] == "hold_then_linear", best
            assert (best["rate"] > 0.003) == (name == "crn" and steps < 200_000), best


def compared() -> list[dict[str, Any]]:
    """The estimators at LR's weights of SBN(200-200), to which the pages refer."""
    (rows,) = [each["rows"] for each in read("compare.json") if each["weights"].endswith("200-200/lr.safetensors")]
    return list(rows)


def test_crn_wins_the_race_and_has_the_lowest_variance_for_its_cost() -> None:
    with (RESULTS / "race.csv").open(encoding="utf-8") as file:
        points = [(row["estimator"], float(row["seconds"]), -float(row["value"])) for row in csv.DictReader(file)]
    for target in (130, 125, 120, 115):
        reached = sorted((seconds, name) for name, seconds, bound in points if bound <= target)
        order = list(dict.fromkeys(name for _, name in reached))
        assert order[:2] in (["crn"], ["crn", "reinmax"]), target
    assert min(compared(), key=work)["estimator"] == "common_random_numbers"


def test_the_orderings_that_the_page_states_were_measured() -> None:
    variance = {row["estimator"]: row["within"] for row in compared()}

    def lead(less: str, more: str) -> float:
        """By how many standard errors one has less variance than the other."""
        one, other = variance[less], variance[more]
        return (other["value"] - one["value"]) / math.hypot(one["standard_error"], other["standard_error"])

    clear = [("arms", "disarm"), ("disarm", "arm"), ("disarm", "leave_one_out")]
    clear += [("rebar", "likelihood_ratio"), ("relax", "likelihood_ratio")]
    clear += [("common_random_numbers", name) for name in variance if name != "common_random_numbers"]
    assert {pair: lead(*pair) for pair in clear if not lead(*pair) > 2} == {}
    for pair in (("rodeo", "double_control"), ("double_control", "leave_one_out")):
        assert 0 < lead(*pair) < 2
    rows = {row["estimator"]: row for row in compared()}
    siblings = ["sibling_rodeo", "sibling_double_control", "sibling_leave_one_out"]
    for less, more in [*pairwise(siblings), ("disarm", siblings[-1])]:
        for layer in range(2):
            ratio, error = paired_ratio(rows[less], rows[more], layer)
            assert ratio + 2 * error < 1, (less, more, layer)


# --- the files belong together


def test_pages_written_again_from_the_clone_are_the_committed_ones(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("runs", "mine", "*.safetensors")
    shutil.copytree(RESULTS, tmp_path, ignore=ignored, dirs_exist_ok=True)
    write_everything(tmp_path)
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.suffix in TEXTS]
    assert len(written) > 30
    assert [path for path in written if (tmp_path / path).read_bytes() != (RESULTS / path).read_bytes()] == []


def test_every_published_run_has_its_curve_and_its_test_bits_and_no_other_run_has() -> None:
    """What `publish` leaves behind, and `redrawn_test_bits` after it."""
    for folder in (RESULTS, RESULTS / "converged"):
        runs = {(run.net, run.estimator, f"seed{run.seed}") for run in read_runs(folder)}
        curves = {path.parts[-4:-1] for path in (folder / CURVES).rglob("events.out.tfevents.published")}
        assert curves == runs
    models = {-run.result["test/elbo"] for name in ("", "converged") for run in read_runs(RESULTS / name)}
    assert {cell["frozen"] for cell in read("test_bits.json")["cells"]} <= models
    assert sum(path.stat().st_size for path in RESULTS.rglob("events.out.tfevents.published")) < 3_000_000


@pytest.mark.long
def test_the_published_weights_give_the_bounds_of_the_table() -> None:
    verdicts = verify.verify(RESULTS, 2, BinarizedMNIST())
    assert {str(verdict.cell): verdict.problem for verdict in verdicts if verdict.problem} == {}
    in_tables = [row["test_nll_mean"] for row in (*read("table1.json"), *longer_rows(RESULTS))]
    assert sorted(v.tabulated.bound for v in verdicts if v.tabulated) == sorted(in_tables)


def test_the_page_of_results_names_every_file() -> None:
    command = ["git", "ls-files"]
    tracked = subprocess.run(command, cwd=RESULTS, capture_output=True, text=True, check=True).stdout.split()
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/.]+)`", page)) | {"README.md"}
    endings = {f"table1{ending}" for ending in re.findall(r"`(\.\w+)`", page)}
    folders = tuple(name for name in named if name.endswith("/"))
    assert [name for name in tracked if name not in named | endings and not name.startswith(folders)] == []


def test_the_readme_shows_the_table_that_is_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"<!-- python -m releg.report -->\n{short_table(RESULTS)}<!-- end -->" in readme


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_files_that_a_page_links_to_or_names_are_there(page: Path) -> None:
    assert broken_links(page) == []
    named = re.findall(r"`((?:releg|lightning_modules|tests)/[\w./]*)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_names_every_shipped_estimator() -> None:
    named = re.findall(r"`([a-z_]+)`(?=[^|]*\|[^|]*\|$)", section("releg", "The estimators"), re.MULTILINE)
    assert sorted(named) == shipped_names()


def test_the_citation_names_the_version_of_the_project() -> None:
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()

"""The files in results/ belong together, and pages written by hand state their numbers, in whatever words."""

import csv
import json
import math
import os
import re
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line import verify
from lightning_modules.shipped_estimators import shipped_names
from releg.records.file_names import TRIALS
from releg.records.runs import read_runs
from releg.report.__main__ import main as write_everything
from releg.report.bench import by_ways, fastest
from releg.report.compare import work
from releg.report.race import TARGETS, race
from releg.report.table1 import gaps, longer_rows, short_table
from releg.report.variance import at_shared_weights, largest, lr_to_crn, measured_variances, tables
from releg.weights import digest, load
from tests.environment import ROOT
from tests.pages import PAGES, broken_links, decimals, paragraph, section

RESULTS = ROOT / "results"
TEXTS = (".md", ".csv", ".json")  # the bytes of a figure depend on the versions of what draws it
OTHER_RUN = "results/ is not as committed, so the README does not describe it"


@pytest.fixture
def as_committed() -> None:
    """Users who followed the README and trained have other results than it shows; in CI that is a failure."""
    status = ["git", "status", "--porcelain", "--", "results"]
    changed = subprocess.run(status, cwd=ROOT, capture_output=True, text=True)
    if changed.returncode == 0 and changed.stdout:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(OTHER_RUN)


describes_results = pytest.mark.usefixtures("as_committed")


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_bytes())


def nats(value: float) -> str:
    return f"{abs(value):.2f}"


def deviation_over_seeds() -> float:
    """Of a bound, pooled over the cells of Table 1."""
    return math.sqrt(statistics.fmean(row["test_nll_sd"] ** 2 for row in read("table1.json")))


def by_chance(*seeds: int) -> float:
    """How far apart two means over so many seeds can be, on the same test bits."""
    return 2 * deviation_over_seeds() * math.sqrt(sum(1 / count for count in seeds))


def test_pages_written_again_from_the_clone_are_the_committed_ones(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path, ignore=shutil.ignore_patterns("runs", "*.safetensors"), dirs_exist_ok=True)
    write_everything(tmp_path)
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.suffix in TEXTS]
    assert len(written) > 30
    assert [path for path in written if (tmp_path / path).read_bytes() != (RESULTS / path).read_bytes()] == []


def test_the_page_of_results_names_every_file() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=RESULTS, capture_output=True, text=True, check=True
    ).stdout.split()
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/.]+)`", page)) | {"README.md"}
    endings = {f"table1{ending}" for ending in re.findall(r"`(\.\w+)`", page)}
    folders = tuple(name for name in named if name.endswith("/"))
    assert [name for name in tracked if name not in named | endings and not name.startswith(folders)] == []


@describes_results
def test_the_readme_shows_the_table_that_is_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"<!-- python -m releg.report -->\n{short_table(RESULTS)}<!-- end -->" in readme


@describes_results
def test_crn_beats_lr_wherever_both_were_trained_and_reaches_the_papers_bounds() -> None:
    for folder in ("", "quick/", "converged/"):
        assert min(gaps(read(f"{folder}table1.json"), "test_nll_mean").values()) > 0
    assert all(row["difference"] < 0 for row in read("table1.json") if row["estimator"] == "crn")


@pytest.mark.long
@describes_results
def test_the_published_weights_give_the_bounds_of_the_table() -> None:
    verdicts = verify.verify(RESULTS, 2, BinarizedMNIST())
    assert {str(verdict.cell): verdict.problem for verdict in verdicts if verdict.problem} == {}
    in_tables = [*read("table1.json"), *longer_rows(RESULTS)]
    assert sorted(v.table for v in verdicts if v.table) == sorted(row["test_nll_mean"] for row in in_tables)


@describes_results
def test_the_page_says_how_the_table_was_trained() -> None:
    runs = read_runs(RESULTS)
    text = paragraph("results", "standard deviation over three seeds")
    assert {run.seed for run in runs} == {0, 1, 2}
    assert {(run.steps, run.warmup, run.rate) for run in runs} == {(200_000, 20_000, 0.003)}
    assert {"200,000", "20,000", "0.003"} <= set(text.replace(":", "").split())
    longer = {(run.steps, run.warmup, run.rate, run.seed) for run in read_runs(RESULTS / "converged")}
    assert longer == {(1_000_000, 100_000, 0.003, 0)}
    minutes = sum(run.result["training_seconds"] for run in runs) / 60
    fastest = sum(row["minutes"] for row in read("table1.json"))
    assert f"{len(runs)} runs" in text
    assert f"{minutes:.0f} minutes" in text
    assert f"{fastest:.0f}." in text


@describes_results
def test_the_pages_say_how_far_bounds_can_differ_by_chance() -> None:
    spreads = [statistics.stdev(cell["bounds"]) for cell in read("test_bits.json")["cells"]]
    page = section("results", "How much two bounds can differ by chance")
    together = math.ceil(10 * math.hypot(by_chance(3, 1), 2 * math.sqrt(2) * max(spreads))) / 10
    stated = {nats(deviation_over_seeds()), nats(min(spreads)), nats(max(spreads)), nats(by_chance(3, 1))}
    assert decimals(page) == stated | {f"{together:.1f}"}
    assert decimals(paragraph("results", "clearly below")) == {f"{together:.1f}"}
    clear = [row for row in read("table1.json") if row["estimator"] == "crn" and row["difference"] < -together]
    assert [row["architecture"] for row in clear] == ["200-200-200", "32-64-128-256"]
    frozen = {-run.result["test/elbo"] for name in ("", "converged") for run in read_runs(RESULTS / name)}
    assert {cell["frozen"] for cell in read("test_bits.json")["cells"]} <= frozen, "of models that are published"


@describes_results
def test_the_page_says_what_longer_training_led_to() -> None:
    longer = longer_rows(RESULTS)
    lr = {row["architecture"]: row for row in longer if row["estimator"] == "lr"}
    assert len(lr) == 4
    assert all(row["difference"] < 0 for row in lr.values())
    crn = {row["architecture"]: row["test_nll_mean"] for row in read("table1.json") if row["estimator"] == "crn"}
    apart = {net: abs(row["test_nll_mean"] - crn[net]) for net, row in lr.items()}
    level = [net for net in apart if apart[net] < by_chance(3, 1)]
    assert re.findall(r"SBN\(([\d-]+)\)", paragraph("results", "LR needs more steps")) == level
    ((net, gap),) = gaps(longer, "test_nll_mean").items()
    assert gap > by_chance(1, 1)
    text = paragraph("results", "CRN also ends lower")
    assert f"SBN({net})" in text
    assert decimals(text) == {nats(gap), nats(gaps(longer, "paper")[net])}


@describes_results
def test_the_page_says_how_far_the_papers_protocol_was_trained() -> None:
    with (RESULTS / "paper_protocol.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    text = paragraph("results", "paper's own protocol")
    (rate,) = {run["config"]["model.optimizer.init_args.lr"] for run in read("paper_protocol.json")["unfinished"]}
    best = {name: max(float(r["value"]) for r in rows if r["estimator"] == name) for name in ("lr", "crn")}
    steps = {name: max(int(row["step"]) for row in rows if row["estimator"] == name) for name in best}
    assert decimals(text) == {str(rate), *map(nats, best.values())}
    assert all(f"{count:,}" in text for count in steps.values())


@describes_results
def test_the_pages_state_what_the_trials_show() -> None:
    published = {run.cell: run for run in read_runs(RESULTS) if run.seed == 0}

    def lost(**wanted: Any) -> dict[tuple[str, str], float]:
        """By how much trials of 200,000 steps end above the published run of their cell; lower is better."""
        trials = [trial for trial in read(TRIALS) if trial["steps"] == 200_000 and wanted.items() <= trial.items()]
        best: dict[tuple[str, str], float] = {}
        for trial in trials:
            cell = trial["architecture"], trial["estimator"]
            best[cell] = min(best.get(cell, math.inf), published[cell].result["val/elbo"] - trial["val/elbo"])
        return best

    assert decimals(paragraph("results", "training bits")) == {f"{lost(binarization='fixed')['200-200', 'crn']:.1f}"}
    held = lost(shape="hold_then_linear")
    assert decimals(paragraph("results", "same learning rate")) == {
        f"{-held['200-200', name]:.1f}" for name in ("lr", "crn")
    }
    cold = lost(shape="linear", warmup=0)
    helped = [("200-200-200", "crn"), ("32-64-128-256", "lr"), ("32-64-128-256", "crn")]
    cost = [-nats_lost for cell, nats_lost in cold.items() if cell not in helped]
    stated = {nats(cold[cell]) for cell in helped} | {nats(min(cost)), nats(max(cost))}
    assert decimals(section("results", "What the trials of the learning rate show")) == stated


@describes_results
def test_the_best_schedule_of_each_length_is_the_one_the_page_names() -> None:
    trials = [trial for trial in read(TRIALS) if (trial["architecture"], trial["warmup"]) == ("200-200", 0)]
    for steps in {trial["steps"] for trial in trials}:
        for name in ("lr", "crn"):
            tried = [trial for trial in trials if (trial["steps"], trial["estimator"]) == (steps, name)]
            best = max(tried, key=lambda trial: float(trial["val/elbo"]))
            assert best["shape"] == "hold_then_linear"
            assert (best["rate"] > 0.003) == (name == "crn" and steps < 200_000)


@describes_results
def test_the_readme_gives_the_range_of_the_variances_that_were_measured() -> None:
    known = tables(at_shared_weights(measured_variances(RESULTS)))
    at = largest(known)
    ratios = [lr_to_crn(known[at], layer, "total", "total").value for layer in (1, 2, 3, 4)]
    text = paragraph("", "Figure 1 of the paper")
    assert f"{at.step:,}" in text
    assert f"{at.images:,}" in text
    assert (math.floor(math.log10(min(ratios))), math.ceil(math.log10(max(ratios)))) == (5, 9)
    assert re.findall("10[⁰-⁹]", text) == ["10⁵", "10⁹", "10⁵", "10⁸"]


@describes_results
def test_crn_wins_the_race_and_has_the_lowest_variance_for_its_cost() -> None:
    racers = {racer.runs[0].estimator: racer for racer in race(RESULTS)}
    text = paragraph("results", "Which estimator should you use?")
    assert f"All {len(racers)} " in text
    assert f"{racers['lr'].runs[0].steps:,} steps" in text
    for target in TARGETS:
        times = {name: racer.minutes_to(target) for name, racer in racers.items()}
        order = sorted((minutes, name) for name, minutes in times.items() if minutes is not None)
        assert [name for _, name in order[:2]] in ([], ["crn"], ["crn", "reinmax"])
    assert min(read("compare.json")["rows"], key=work)["estimator"] == "common_random_numbers"


@describes_results
def test_the_pages_state_the_cost_that_was_measured() -> None:
    ours = [fastest(ways) for ways in by_ways(read("bench.json")["steps"])]
    one, two = ([r["ratio_to"]["lr"][0] for r in ours if (r["estimator"], r["threads"]) == ("crn", n)] for n in (1, 2))
    minutes = {(row["architecture"], row["estimator"]): row["minutes"] for row in read("table1.json")}
    whole = [minutes[net, "crn"] / minutes[net, "lr"] for net, _ in minutes]
    stated = {f"{end(ratios):.2f}" for ratios in (two, one) for end in (min, max)}
    text = paragraph("results", "a training step with CRN costs")
    assert decimals(text) == stated | {f"{end(whole):.1f}" for end in (min, max)}
    assert {f"{end([*one, *two]):.1f}" for end in (min, max)} <= decimals(paragraph("", "takes 1.2 to 1.4 times"))


@describes_results
def test_the_orderings_that_the_page_states_were_measured() -> None:
    variance = {row["estimator"]: row["within"] for row in read("compare.json")["rows"]}

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


@describes_results
def test_the_library_s_page_states_the_ratios_that_were_measured() -> None:
    variance = {row["estimator"]: row["within"]["value"] for row in read("compare.json")["rows"]}
    page = (ROOT / "releg" / "README.md").read_text(encoding="utf-8")
    for words, name in (
        ("`gradient`, `functional.common_random_numbers`", "common_random_numbers"),
        ("the same with `flips=k`", "pruned"),
        ("`functional.disarm`", "disarm"),
        ("`functional.arms`", "arms"),
        ("`functional.leave_one_out`", "leave_one_out"),
        ("`CommonRandomNumbers`", "common_random_numbers"),
        ("`functional.reinmax`", "reinmax"),
    ):
        ratio = float(f"{variance['likelihood_ratio'] / variance[name]:.2g}")
        assert f"| {words} | {ratio:g} " in page


@describes_results
def test_estimators_were_compared_at_the_weights_that_are_published() -> None:
    compared = read("compare.json")
    (path,) = re.findall(r"--ckpt results/(\S+)", compared["command"])
    assert compared["weights_sha256"] == digest(load(RESULTS / path).state_dict(), {})


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

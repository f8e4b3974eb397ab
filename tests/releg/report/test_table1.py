"""Table 1 from made-up results."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from releg.records.names import ARCHITECTURES
from releg.report.summary import summary
from releg.report.table1 import write_table1
from tests.releg.report.synthetic import PROVENANCE, entry, write_results

BOTH = [entry("200-200", "lr", 0, 112.0), entry("200-200", "lr", 1, 114.0), entry("200-200", "crn", 0, 108.5)]


def test_a_row_has_mean_and_deviation_over_seeds_and_the_difference_to_the_paper(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, BOTH))
    lr, crn = json.loads((tmp_path / "table1.json").read_text())
    assert (lr["architecture"], lr["estimator"], lr["budget"], lr["steps"]) == ("200-200", "lr", "quick", 10_000)
    assert lr["seeds"] == [0, 1]
    assert lr["test_nll_mean"] == pytest.approx(113.0)
    assert lr["test_nll_sd"] == pytest.approx(2**0.5)
    assert lr["paper"] == 98.86
    assert lr["difference"] == pytest.approx(113.0 - 98.86)
    assert lr["multi_sample_nll_mean"] == pytest.approx(111.0)
    assert lr["best_steps"] == [10_000, 9_500]
    assert lr["minutes"] == pytest.approx(1.5)
    assert crn["test_nll_sd"] is None


def test_the_markdown_is_this(tmp_path: Path) -> None:
    assert write_table1(write_results(tmp_path, BOTH, {"SBN(200-200) crn seed 1": "not trained yet"})) == (
        "**Table 1.** Variational bound of the negative log-likelihood on the MNIST test images, in nats per image "
        "(lower is better). Mean ± standard deviation over seeds. Minutes: the training steps of the fastest run, "
        "without validation and measurements; longer if the machine had other work.\n"
        "\n"
        "| SBN | estimator | ours | paper | difference | 10-sample bound | steps | best step | minutes | seeds |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| 200-200 | LR | 113.00 ± 1.41 | 98.86 | +14.14 | 111.00 ± 1.41 | 10,000 | 9,500 to 10,000 | 1.5 | 2 |\n"
        "| 200-200 | CRN | 108.50 | 98.28 | +10.22 | 106.50 | 10,000 | 10,000 | 1.5 | 1 |\n"
        "\n"
        "Budget quick: 10,000 steps per run, RMSprop at 0.001, constant; not converged: the authors' later code trains "
        "for 2,000,000 steps.\n"
        "\n"
        "Not in this table:\n"
        "\n"
        "- SBN(200-200) crn seed 1: not trained yet\n"
        "\n"
        "| LR − CRN | 200-200 |\n"
        "| --- | ---: |\n"
        "| ours | +4.50 |\n"
        "| paper | +0.58 |\n"
    )


@pytest.mark.parametrize("steps", [40, 200, 10_000, 200_000])
def test_every_form_of_a_short_table_says_that_it_is_not_converged(tmp_path: Path, steps: int) -> None:
    write_table1(write_results(tmp_path, [entry("200-200", "lr", 0, 112.0, steps)]))
    for suffix in ("md", "csv", "json", "tex"):
        text = (tmp_path / f"table1.{suffix}").read_text()
        assert f"{steps:,} steps per run, RMSprop at 0.001, constant; not converged" in text


def test_the_budget_of_the_authors_is_not_called_short(tmp_path: Path) -> None:
    text = write_table1(write_results(tmp_path, [entry("200-200", "lr", 0, 98.9, 2_000_000)]))
    assert (
        "2,000,000 steps per run, RMSprop at 0.001, constant; at least as many steps as the authors' later code trains."
        in text
    )
    assert "converged" not in text


def test_an_annealed_table_says_its_recipe(tmp_path: Path) -> None:
    run = entry("200-200", "lr", 0, 98.9, 200_000)
    run["config"] |= {
        "model.optimizer.class_path": "torch.optim.RMSprop",
        "model.optimizer.init_args.lr": 0.003,
        "model.lr_scheduler.class_path": "lightning_modules.schedules.LinearDecay",
    }
    text = write_table1(write_results(tmp_path, [run]))
    assert "Budget standard: 200,000 steps per run, RMSprop at 0.003, falling linearly to zero.\n" in text
    run["config"] |= {"model.lr_scheduler.init_args.warmup_steps": 1000}
    text = write_table1(write_results(tmp_path, [run]))
    assert "RMSprop at 0.003, falling linearly to zero, with a warm-up over the first 1,000 steps.\n" in text
    other = entry("200-200", "crn", 0, 98.9, 200_000)
    text = write_table1(write_results(tmp_path, [run, other]))
    assert "a warm-up over the first 1,000 steps (200-200 LR) and RMSprop at 0.001, constant (200-200 CRN)" in text
    third = entry("200-200-200", "lr", 0, 95.0, 200_000) | {"config": run["config"] | {"model.layers": [200, 200, 200]}}
    text = write_table1(write_results(tmp_path, [run, third, entry("200-200-200-200", "lr", 0, 94.0, 200_000)]))
    assert "over the first 1,000 steps (200-200, 200-200-200) and RMSprop at 0.001, constant (200-200-200-200)" in text


def test_another_budgets_table_stands_beside_the_published_one(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, [entry("200-200", "lr", 0, 99.0)]))
    text = write_table1(write_results(tmp_path / "quick", BOTH))
    assert "| SBN | estimator | here | standard | paper |" in text
    assert "| 200-200 | LR | 113.00 | 99.00 | 98.86 |" in text
    assert "| 200-200 | CRN | 108.50 |  | 98.28 |" in text
    assert "published" not in write_table1(write_results(tmp_path / "elsewhere", BOTH))


@pytest.mark.parametrize(
    ("crn", "note"),
    [
        (98.28, "With 200-200, CRN is at or below the paper's bound, and LR is more than half a nat above it."),
        (98.7, "With 200-200, CRN is at most half a nat above the paper's bound, and LR has not come that far."),
        (98.9, ""),
    ],
)
def test_gaps_are_explained_where_only_crn_has_come_to_the_papers_bound(crn: float, note: str, tmp_path: Path) -> None:
    both = [entry("200-200", "lr", 0, 99.5), entry("200-200", "crn", 0, crn)]
    text = write_table1(write_results(tmp_path, both))
    assert note in text
    assert ("These gaps are at equal steps." in text) == bool(note)


def test_a_net_without_lr_keeps_the_gaps_from_being_those_of_all_nets(tmp_path: Path) -> None:
    nets = ARCHITECTURES[:2]
    runs = [*(entry(net, "lr", 0, 110.0) for net in nets), *(entry(net, "crn", 0, 90.0) for net in nets)]
    assert "With all nets of this table, CRN" in write_table1(write_results(tmp_path, runs))
    runs += [entry(ARCHITECTURES[2], "crn", 0, 90.0)]
    assert f"With {', '.join(nets)}, CRN" in write_table1(write_results(tmp_path, runs))


def test_the_published_table_also_shows_the_cells_that_were_trained_for_longer(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, BOTH))
    assert "Trained for longer" not in summary(tmp_path)
    write_table1(write_results(tmp_path / "converged", [entry("200-200", "lr", 0, 98.5, 1_000_000)]))
    text = (tmp_path / "table1.md").read_text()
    assert "Trained for longer:" in text
    assert "| 200-200 | LR | 98.50 | 98.86 | -0.36 | 96.50 | 1,000,000 |" in text
    assert "Budget converged: 1,000,000 steps per run" in text
    assert "| 200-200 | LR | 1,000,000 | 98.50 | 98.86 | -0.36 | 2 |" in summary(tmp_path)


def test_a_reader_who_copies_the_table_gets_the_cells_that_were_trained_for_longer(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, BOTH))
    before = (tmp_path / "table1.json").read_text()
    assert "trained for longer" not in (tmp_path / "table1.tex").read_text()
    write_table1(write_results(tmp_path / "converged", [entry("200-200", "lr", 0, 98.5, 1_000_000)]))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table1.csv").read_text())))
    assert [row["steps"] for row in rows] == ["10000", "10000", "1000000"]
    tex = (tmp_path / "table1.tex").read_text()
    assert "Below the line, trained for longer: Budget converged: 1,000,000 steps per run" in tex
    assert tex.count(r"\midrule") == 2
    assert r"200-200 & LR & 98.50 & 98.86 & $-0.36$ & 96.50 & 1,000,000 & 1,000,000 & 1.5 & 1 \\" in tex
    assert (tmp_path / "table1.json").read_text() == before  # releg verify takes its rows for those of this folder


@pytest.mark.parametrize("runs", [BOTH, BOTH[1:]], ids=["several seeds", "one seed"])
def test_a_deviation_over_seeds_is_explained_where_there_is_one(tmp_path: Path, runs: list[dict[str, Any]]) -> None:
    several = len(runs) > 2
    text = write_table1(write_results(tmp_path, runs))
    for shown in (text, (tmp_path / "table1.tex").read_text(), summary(tmp_path)):
        assert ("standard deviation over seeds" in shown) == several
    assert ("| 200-200 | 113.00 ± 1.41 | 108.50 |" in summary(tmp_path)) == several


@pytest.mark.parametrize(
    ("count", "whose", "sums"),
    [
        (2, "a run", "2 runs add up to 6 minutes on one thread (A CPU, 2 cores), without validation and measurements."),
        (
            *(3, "the fastest run"),
            "3 runs add up to 11 minutes on one thread (A CPU, 2 cores), without validation and measurements, those of "
            "the fastest run of each cell to 6.",
        ),
    ],
)
def test_minutes_are_those_of_the_fastest_run_which_had_the_machine_to_itself(
    count: int, whose: str, sums: str, tmp_path: Path
) -> None:
    runs = [
        run
        | {"provenance": [PROVENANCE | {"torch_threads": 1}]}
        | {"result": run["result"] | {"training_seconds": seconds}}
        for run, seconds in zip((BOTH[0], BOTH[2], BOTH[1]), (120.0, 240.0, 300.0), strict=True)
    ][:count]
    path = write_results(tmp_path, runs) / "runs.json"
    assert f"Minutes: the training steps of {whose} on one thread, without validation" in write_table1(tmp_path)
    rows = json.loads((tmp_path / "table1.json").read_text())
    assert {row["estimator"]: row["minutes"] for row in rows} == {"lr": 2.0, "crn": 4.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": None}))
    assert f"The training steps of the {sums}" in summary(tmp_path)


def test_rows_stand_in_the_papers_order_and_runs_of_other_estimators_are_left_out(tmp_path: Path) -> None:
    other = entry("200-200", "lr", 0, 50.0)
    other["config"]["model.estimator.class_path"] = "somewhere.MuProp"
    runs = [entry("32-64-128-256", "crn", 0, 1.0), other, entry("200-200-200", "lr", 0, 2.0), BOTH[2], BOTH[0]]
    write_table1(write_results(tmp_path, runs))
    rows = json.loads((tmp_path / "table1.json").read_text())
    assert [(row["architecture"], row["estimator"]) for row in rows] == [
        ("200-200", "lr"),
        ("200-200", "crn"),
        ("200-200-200", "lr"),
        ("32-64-128-256", "crn"),
    ]


def test_an_architecture_that_the_paper_lacks_comes_last_without_a_number_of_the_paper(tmp_path: Path) -> None:
    text = write_table1(
        write_results(tmp_path, [entry("50-10", "lr", 0, 130.0), entry("50-10", "crn", 0, 120.0), *BOTH])
    )
    assert "| 50-10 | LR | 130.00 |  |  | 128.00 | 10,000 |" in text
    assert (
        "| LR − CRN | 200-200 | 50-10 |\n| --- | ---: | ---: |\n| ours | +4.50 | +10.00 |\n| paper | +0.58 |  |" in text
    )
    assert r"50-10 & LR & 130.00 &  &  & 128.00 & 10,000 &" in (tmp_path / "table1.tex").read_text()
    assert [row["paper"] for row in json.loads((tmp_path / "table1.json").read_text())] == [98.86, 98.28, None, None]
    assert "| 50-10 | 130.00 | 120.00 |  |  |  |  |" in summary(tmp_path)


def test_the_short_table_leaves_the_cell_of_an_estimator_without_runs_empty(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, [BOTH[2]]))
    assert "| 200-200 |  | 108.50 | 98.86 | 98.28 |  | +10.22 |" in summary(tmp_path)
    assert "| 32-64-128-256 |  |  | 94.73 | 92.79 |  |  |" in summary(tmp_path)


def test_another_data_set_stands_in_the_title_and_is_not_compared_with_the_paper(tmp_path: Path) -> None:
    fashion = entry("200-200", "lr", 0, 240.0)
    fashion["config"]["data.class_path"] = "lightning_modules.binarized_fashion_mnist.BinarizedFashionMNIST"
    alone = write_table1(write_results(tmp_path, [fashion]))
    assert "on the FashionMNIST test images" in alone
    assert "| 200-200, FashionMNIST | LR | 240.00 |  |  |" in alone
    together = write_table1(write_results(tmp_path, [*BOTH, fashion]))
    assert "on the MNIST and FashionMNIST test images" in together
    assert "| 200-200 | LR | 113.00 ± 1.41 | 98.86 |" in together


def test_csv_and_json_hold_the_same_rows(tmp_path: Path) -> None:
    write_table1(write_results(tmp_path, BOTH))
    from_json = json.loads((tmp_path / "table1.json").read_text())
    from_csv = list(csv.DictReader(io.StringIO((tmp_path / "table1.csv").read_text())))
    assert [float(row["test_nll_mean"]) for row in from_csv] == [row["test_nll_mean"] for row in from_json]
    assert list(from_csv[0]) == list(from_json[0])
    assert from_csv[0]["seeds"] == "0 1"


def test_a_table_without_runs_says_so(tmp_path: Path) -> None:
    assert "No run is finished yet." in write_table1(write_results(tmp_path, []))
    assert json.loads((tmp_path / "table1.json").read_text()) == []


@pytest.mark.parametrize("name", ["runs.json", "paper.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"runs": [{}], "test_nll": {"200-200": 3}}'])
def test_a_damaged_file_is_named_and_the_old_table_stays(tmp_path: Path, name: str, content: bytes) -> None:
    write_table1(write_results(tmp_path, BOTH))
    before = (tmp_path / "table1.md").read_text()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} cannot be read \(.*\), expected"):
        write_table1(tmp_path)
    assert (tmp_path / "table1.md").read_text() == before


def test_the_papers_numbers_are_those_of_its_table(tmp_path: Path) -> None:
    paper = json.loads((write_results(tmp_path, []) / "paper.json").read_text())["test_nll"]
    assert tuple(paper) == ARCHITECTURES
    assert [paper[name]["lr"] for name in ARCHITECTURES] == [98.86, 95.40, 94.82, 94.73]
    assert [paper[name]["crn"] for name in ARCHITECTURES] == [98.28, 95.03, 93.67, 92.79]


def test_the_table_says_how_much_the_draw_of_the_test_bits_matters(tmp_path: Path) -> None:
    results = write_results(tmp_path, [entry("200-200", "crn", 0, 98.0), entry("200-200-200", "crn", 0, 93.0)])
    assert "test bits" not in write_table1(results)
    cells = [{"frozen": 98.0, "bounds": [98.1, 98.2, 98.3]}, {"frozen": 93.0, "bounds": [92.4, 92.8, 93.2]}]
    cells += [{"frozen": 99.0, "bounds": [90.0, 99.0, 100.0]}]  # of weights that are no longer those of the table
    (results / "test_bits.json").write_text(json.dumps({"cells": cells}))
    text = write_table1(results)
    assert "On 3 other draws, the bounds of the published models have a standard deviation of 0.10 to 0.40" in text
    luck = "So a difference to the paper of less than 1.2 nats can be luck: here, those of CRN with 200-200."
    assert f"differ from the bounds on ours by -0.20 to +0.20. {luck} Models are compared" in text
    (results / "test_bits.json").write_text(json.dumps({"cells": cells[:1]}))
    assert "the bounds of 1 of the 2 models have" in write_table1(results)
    (results / "test_bits.json").write_text(json.dumps({"cells": cells[2:]}))
    assert "test bits" not in write_table1(results)
    (results / "test_bits.json").write_text("[]")
    with pytest.raises(ValueError, match=r"test_bits\.json"):
        write_table1(results)


def test_luck_is_also_that_of_the_seeds(tmp_path: Path) -> None:
    results = write_results(tmp_path, [entry("200-200", "crn", seed, 98.0 + 0.2 * seed) for seed in range(3)])
    cells = [{"frozen": 98.0, "bounds": [98.1, 98.0, 97.9]}]
    (results / "test_bits.json").write_text(json.dumps({"cells": cells}))
    text = write_table1(results)
    assert "Seeds move them by 0.20 (standard deviation over the seeds of a cell)." in text
    # 2 sqrt(2 0.1² + 0.2² (1 + 1/3)) = 0.54
    assert "less than 0.6 nats can be luck: here, those of CRN with 200-200." in text


@pytest.mark.parametrize(
    ("lr", "words"),
    [
        (93.5, "LR is below CRN in the table above with 200-200-200.\n"),
        (93.9, "LR is within luck of CRN in the table above with 200-200-200.\n"),  # 2 sqrt(0.1² 3/2) = 0.24
        (94.2, "LR is within luck of CRN in the table above with 200-200-200.\n"),
        (94.5, ""),
    ],
)
def test_the_table_says_where_lr_ends_below_crn_or_within_luck_of_it(tmp_path: Path, lr: float, words: str) -> None:
    crn = [entry("200-200-200", "crn", seed, 93.9 + 0.1 * math.sqrt(2) * seed) for seed in range(2)]
    write_table1(write_results(tmp_path, crn))
    write_table1(write_results(tmp_path / "converged", [entry("200-200-200", "lr", 0, lr, 1_000_000)]))
    text = (tmp_path / "table1.md").read_text()
    assert words in text
    assert ("LR is" in text) == bool(words)


@pytest.mark.parametrize(
    ("crn", "words"),
    [
        (97.5, "0.50 nats below LR with 200-200."),
        (98.5, "0.50 nats above LR with 200-200."),
        (97.75, "0.25 nats below LR with 200-200, which can be luck."),  # 2 sqrt(0.1² 2) = 0.28
    ],
)
def test_the_table_says_which_estimator_ends_lower_after_as_many_steps(tmp_path: Path, crn: float, words: str) -> None:
    write_table1(
        write_results(tmp_path, [entry("200-200", "lr", seed, 100.0 + 0.1 * 2**0.5 * seed) for seed in (0, 1)])
    )
    longer = [entry("200-200", "lr", 0, 98.0, 1_000_000), entry("200-200-200", "lr", 0, 95.0, 1_000_000)]
    write_table1(write_results(tmp_path / "converged", [*longer, entry("200-200", "crn", 0, crn, 1_000_000)]))
    assert f"After 1,000,000 steps, CRN is {words}\n" in (tmp_path / "table1.md").read_text()


def test_runs_that_are_not_finished_are_told_with_their_budget_and_how_far_they_are(tmp_path: Path) -> None:
    run = entry("32-64-128-256", "crn", 0, 97.5, 2_000_000)
    result = {name: run["result"][name] for name in ("best_step", "training_seconds", "val/elbo")} | {"steps": 40_000}
    results = write_results(tmp_path, [])
    content = json.loads((results / "runs.json").read_text())
    for steps, title in ((2_000_000, "Budget paper, not finished"), (1_234, "Not finished")):
        config = run["config"] | {"trainer.max_steps": steps, "model.optimizer.init_args.lr": 0.001}
        unfinished = [run | {"result": result, "config": config}]
        (results / "runs.json").write_text(json.dumps(content | {"unfinished": unfinished}))
        text = write_table1(results)
        assert f"\n{title}: RMSprop at 0.001, constant. The best bound on the validation images so far:\n" in text
        assert f"| 32-64-128-256 | CRN | 0 | 40,000 | {steps:,} | 97.50 | 1.5 |" in text


def test_one_thread_is_said_of_the_minutes_only_if_the_longer_runs_had_one_too(tmp_path: Path) -> None:
    def with_threads(run: dict[str, Any], threads: int) -> dict[str, Any]:
        return {**run, "provenance": [{**PROVENANCE, "torch_threads": threads}]}

    write_table1(write_results(tmp_path, [with_threads(run, 1) for run in BOTH]))
    for threads in (1, 2):
        longer = [with_threads(entry("200-200", "lr", 0, 98.0, 1_000_000), threads)]
        write_table1(write_results(tmp_path / "converged", longer))
        assert ("on one thread" in (tmp_path / "table1.md").read_text()) == (threads == 1)


def test_tables_of_other_budgets_are_compared_with_the_published_one_as_it_is_now(tmp_path: Path) -> None:
    quick = write_results(tmp_path / "quick", [entry("200-200", "crn", 0, 112.0)])
    for published in (98.0, 97.0):
        write_results(tmp_path, [entry("200-200", "crn", 0, published, 200_000)])
        write_table1(tmp_path)
        write_table1(quick)
        assert f"| 200-200 | CRN | 112.00 | {published:.2f} | 98.28 |" in (quick / "table1.md").read_text()
    write_results(tmp_path, [entry("200-200", "crn", 0, 96.0, 200_000)])
    write_table1(tmp_path)
    assert "| 200-200 | CRN | 112.00 | 96.00 | 98.28 |" in (quick / "table1.md").read_text()

import json
from pathlib import Path
from typing import Any

import pytest

from releg.records.file_names import BENCH, BENCH_STUDIES
from releg.report import bench

RATIOS = {"lr": 1.0, "crn_cpu": 1.5, "crn_batched": 12.0, "crn_dense": 150.0, "pyro_lr": 2.5}
EXPONENTS = {"lr": 0.5, "crn_cpu": 0.75, "crn_batched": 1.5}


def columns(estimator: str, ms: float) -> dict[str, Any]:
    ratio = RATIOS[estimator]
    return {
        "estimator": estimator,
        "ms_per_step": ms,
        "ms_quartiles": [0.9 * ms, 1.2 * ms],
        "ratio_to_lr": ratio,
        "ratio_quartiles": [0.9 * ratio, 1.1 * ratio],
        "rounds": 5,
        "ms_parts": {} if estimator == "pyro_lr" else {"noise": 0.1, "estimate": 3.3, "backward": 2.2, "rmsprop": 1.1},
    }


def rows() -> list[dict[str, Any]]:
    return [
        {"architecture": architecture, "weights": weights, "trained_steps": steps, "peak_mib": 17.4}
        | columns(name, 8 * ratio)
        for architecture in ("200-200", "32-64-128-256")
        for weights, steps in (("initial", 0), ("trained", 3000))
        for name, ratio in RATIOS.items()
    ]


def floor_rows() -> list[dict[str, Any]]:
    ratios = {("lr", "bare"): 1.9, ("lr", "trainer"): 2.1, ("crn_cpu", "bare"): 3.4, ("crn_cpu", "trainer"): 3.6}
    return [
        {"architecture": "200-200", "weights": "trained", "trained_steps": 3000, "peak_mib": None, "threads": 1}
        | columns(name, 8.0)
        | {"via": via, "ratio_to_floor": ratio, "floor_ms": 2.4 if name == "lr" else 1.9}
        for (name, via), ratio in ratios.items()
    ]


def scaling() -> list[dict[str, Any]]:
    sizes = [("units", size, 2) for size in (50, 100, 200, 400, 800)] + [("depth", 200, d) for d in range(1, 7)]
    return [
        {"study": study, "units": units, "depth": depth, "weights": "initial"}
        | columns(name, 8 * RATIOS[name] * ((units / 200) * (depth / 2)) ** power)
        for study, units, depth in sizes
        for name, power in EXPONENTS.items()
    ]


def studies(load: float = 0.1, note: str = "") -> dict[str, Any]:
    run = {
        "started": "2026-01-01T00:00:00Z",
        "command": ["releg", "bench"],
        "commit": "0123abcd",
        "uncommitted_changes": False,
        "python": "3.11.7",
        "packages": {"torch": "2.15.0", "numba": ""},
        "system": "Linux x86_64",
        "processor": "some processor",
        "cores": 2,
        "load_at_start": load,
        "load_at_end": 2.0,
        "batch_size": 100,
        "threads": 2,
        "seed": 0,
        "memory": "growth of a fresh process",
        "notes": [note] if note else [],
    }
    exponents = [
        {"study": study, "estimator": name, "from": 1, "to": 6, "exponent": power, "exponent_of_ratio": power - 0.5}
        for study in ("units", "depth")
        for name, power in EXPONENTS.items()
    ]
    overhead = {
        "architecture": "200-200",
        "estimator": "lr",
        "bare_steps_per_second": 100.0,
        "trainer_steps_per_second": 90.0,
        "lost": 0.1,
        "lost_quartiles": [0.09, 0.12],
        "repetitions": 6,
        "steps": 500,
    }
    return {"run": run, "scaling": scaling(), "exponents": exponents, "overhead": [overhead]}


NO_PLOT: dict[str, Any] = {"scaling": [], "exponents": [], "overhead": []}


def put(folder: Path, table: list[dict[str, Any]], other: dict[str, Any]) -> None:
    (folder / BENCH).write_text(json.dumps(table))
    (folder / BENCH_STUDIES).write_text(json.dumps(other))


def test_page_shows_times_ratios_memory_exponents_overhead_and_where_they_come_from(tmp_path: Path) -> None:
    put(tmp_path, rows(), studies())
    written = bench.write_bench(tmp_path)
    assert written == [tmp_path / "bench.md", tmp_path / "bench.png"]
    text = written[0].read_text()
    assert "| SBN(32-64-128-256) | 8.0 | 12.0 (1.50; 1.35 to 1.65) |" in text
    assert "1200 (150; 135 to 165)" in text
    assert (
        "(threads: 2) costs\n\n- 1.50 to 1.50 times an LR step\n- 1/100 to 1/100 of a step that simulates every flip"
        in text
    )
    assert "Weights after 3000 steps" in text
    assert "| SBN(200-200) | 17 | 17 | 17 | 17 | 17 |" in text
    assert "| 200 | 8.0 | 12.0 | 1.50 | 0.50 | 0.75 |" in text
    assert "From 50 to 800 units per layer a CRN step costs" in text
    assert "| units per layer (depth 2) | 1 to 6 | CRN, cpu kernel | 0.75 | +0.25 |" in text
    assert "| SBN(200-200) | LR | 10.0% (9.0% to 12.0%) |" in text
    assert "some processor, 2 cores" in text
    assert "commit: 0123abcd;" in text
    assert "threads: 2" in text
    assert "do not trust these times" not in text
    assert written[1].read_bytes().startswith(b"\x89PNG")


def test_page_leads_with_how_far_a_step_is_from_its_floor(tmp_path: Path) -> None:
    put(tmp_path, [*rows(), *floor_rows()], studies() | NO_PLOT)
    text = bench.write_bench(tmp_path)[0].read_text()
    assert "| SBN(200-200) | trained | 1 | 2.4 / 1.9 | 1.90 | 2.10 | 3.40 | 3.60 | 1.50 | 1.50 |" in text
    assert text.index("## Against the floor") < text.index("A CRN step with the cpu kernel (threads: 2) costs")
    assert "| SBN(200-200) | 17 | 17 | 17 | 17 | 17 |" in text  # rows of one thread are not among those of all


def test_same_numbers_make_the_same_files(tmp_path: Path) -> None:
    put(tmp_path, rows(), studies())
    first = [path.read_bytes() for path in bench.write_bench(tmp_path)]
    assert [path.read_bytes() for path in bench.write_bench(tmp_path)] == first


def test_page_warns_if_the_machine_was_busy(tmp_path: Path) -> None:
    put(tmp_path, rows(), studies(load=1.7) | NO_PLOT)
    assert "do not trust these times" in bench.write_bench(tmp_path)[0].read_text()


def test_estimators_that_were_not_measured_are_left_out_with_a_note(tmp_path: Path) -> None:
    put(
        tmp_path,
        [row for row in rows() if row["estimator"] != "pyro_lr"],
        studies(note="pyro_lr is left out.") | NO_PLOT,
    )
    text = bench.write_bench(tmp_path)[0].read_text()
    assert "| CRN, dense |\n" in text
    assert "- pyro_lr is left out." in text


def test_memory_that_could_not_be_measured_shows_as_a_dash(tmp_path: Path) -> None:
    put(tmp_path, [{**row, "peak_mib": None} for row in rows()], studies() | NO_PLOT)
    assert "| SBN(200-200) | – | – | – | – | – |" in bench.write_bench(tmp_path)[0].read_text()


def test_without_growth_and_overhead_there_is_neither_section_nor_an_old_plot(tmp_path: Path) -> None:
    (tmp_path / "bench.png").write_text("of another run")
    put(tmp_path, rows(), studies() | NO_PLOT)
    assert bench.write_bench(tmp_path) == [tmp_path / "bench.md"]
    assert not (tmp_path / "bench.png").exists()
    text = (tmp_path / "bench.md").read_text()
    assert "Growth" not in text
    assert "Trainer" not in text


def test_missing_and_damaged_numbers_are_told_in_one_sentence(tmp_path: Path) -> None:
    for cause in ("FileNotFoundError", "JSONDecodeError"):
        with pytest.raises(
            ValueError, match=rf"bench.json cannot be read \({cause}.*, expected .*; run releg bench first"
        ):
            bench.write_bench(tmp_path)
        (tmp_path / BENCH).write_text("[{")


def test_a_page_of_a_gpu_names_it_and_its_engine() -> None:
    def renamed(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"estimator": row["estimator"].replace("_cpu", "_triton"), "ms_parts": {}}

    on_cuda, told = [renamed(row) for row in [*rows(), *floor_rows()]], studies()
    told["run"]["gpu"] = "some GPU"
    for study in ("scaling", "exponents", "overhead"):
        told[study] = [renamed(row) for row in told[study]]
    page = bench.markdown(on_cuda, told)
    assert "some processor, 2 cores, some GPU, Linux" in page
    assert "A CRN step with the triton engine costs" in page
    assert "initial weights, triton engine)" in page
    assert "| CRN, triton engine |" in page
    assert "## Against the floor" in page
    assert "cpu kernel" not in page
    assert "Where the time goes" not in page  # its parts are not known there

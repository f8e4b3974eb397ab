"""reproduce.sh --launcher ray on a cluster of two nodes, both on this machine: the numbers of the local launcher."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Process, end_all, find_processes
from tests.reproduce_script import FIGURE1, Script, curve, finish, needs_ray, wait_for, without_times


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Of two nodes; the test that uses it takes one away."""
    from ray.cluster_utils import Cluster

    settings: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0, "include_dashboard": False}
    settings["object_store_memory"] = 80_000_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args=settings)
        cluster.add_node(**settings)
        yield cluster
        cluster.shutdown()


def trainers(results: Path) -> list[Process]:
    """Processes that train in the folder."""
    return find_processes("lightning_modules.grid.process", str(results))


def start(script: Script, results: Path, cluster: Any) -> "subprocess.Popen[str]":
    return script.tiny(results, *FIGURE1, "--launcher", "ray", "--ray-address", cluster.address)


@needs_ray
@pytest.mark.long
def test_interrupted_with_workers_killed_and_a_machine_lost_it_ends_with_the_numbers_of_the_local_launcher(
    script: Script, undisturbed: tuple[Path, str, str], cluster: Any, tmp_path: Path, is_full: bool
) -> None:
    process = start(script, tmp_path, cluster)
    wait_for(lambda: len(list(tmp_path.rglob("last.ckpt"))) > 0, process)
    left = [trainer.pid for trainer in trainers(tmp_path)]
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert end_all(left, patience=0) == 0
    assert code == 130, err
    assert err.splitlines()[-1].startswith("reproduce.sh: interrupted; the same command continues from the last")

    moments = random.Random(10)
    second = next(iter(cluster.worker_nodes))
    raylet = second.all_processes["raylet"][0].process.pid
    process = start(script, tmp_path, cluster)

    def on_second_node() -> list[Process]:
        workers = {worker.pid for worker in find_processes() if worker.parent == raylet}
        return [trainer for trainer in trainers(tmp_path) if trainer.parent in workers]

    def has_checkpoint(trainer: Process) -> bool:
        estimator = "likelihood_ratio" if "likelihood_ratio.yaml" in trainer.command else "common_random_numbers"
        return (tmp_path / "runs" / "32-64-128-256" / estimator / "seed0" / "last.ckpt").is_file()

    def kill_workers(those: list[Process]) -> None:
        for trainer in those:
            os.kill(trainer.parent, signal.SIGKILL)  # its trainer ends with it
        assert end_all([trainer.pid for trainer in those], patience=10) == 0

    for _ in range(3 if is_full else 0):  # of both runs: where one is finished, Ray may give its place to the other
        wait_for(lambda: len(trainers(tmp_path)) == 2, process)
        time.sleep(moments.uniform(0.0, 3.0))  # while they start, which takes longer
        kill_workers(trainers(tmp_path))
    wait_for(lambda: any(map(has_checkpoint, on_second_node())), process)
    kill_workers(on_second_node())
    wait_for(lambda: len(on_second_node()) == 1, process)  # Ray tries again there, the other node having no room
    (trainer,) = on_second_node()
    cluster.remove_node(second, allow_graceful=False)
    assert end_all([trainer.pid], patience=20) == 0
    code, out, err = finish(process)
    assert code == 0, err
    assert "on a Ray cluster" in err
    assert "32-64-128-256" in out
    assert without_times(tmp_path) == without_times(undisturbed[0])
    assert curve(tmp_path) == curve(undisturbed[0])
    logs = [path.read_text() for path in tmp_path.rglob("log.txt")]
    assert sum(log.count("--- SBN") for log in logs) >= 5, "two runs, interrupted, one of them started again twice"
    for said in (err, *logs):
        assert "Traceback" not in said


@pytest.mark.long
@needs_ray
def test_a_cluster_that_is_not_there_is_told_in_one_sentence(script: Script, tmp_path: Path) -> None:
    code, out, err = finish(script.tiny(tmp_path, *FIGURE1, "--launcher", "ray", "--ray-address", "127.0.0.1:9"))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("reproduce.sh: cannot join the Ray cluster at 127.0.0.1:9 (")
    assert "Traceback" not in err

"""`v0-bench rollouts --ray` on a real Ray cluster of this machine."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rollout_runs import (
    arguments,
    copy_broken,
    finish,
    journal_rows,
    save_checkpoint,
    save_problems,
)

QUERIES = 8
PORT = 26379


def test_ray_without_a_cluster(tmp_path):
    pytest.importorskip("ray")
    save_checkpoint(tmp_path / "runs" / "step_0")
    problems = save_problems(tmp_path, 2)
    args = arguments(tmp_path / "runs", tmp_path / "out", problems, "--ray", "127.0.0.1:1")
    status, _, err = finish(args)
    assert status == 2
    assert "no Ray cluster answers at '127.0.0.1:1'" in err
    assert "Traceback" not in err


@pytest.fixture
def cluster():
    """A cluster of one node with two CPUs, no GPU."""
    pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(prefix="v0-ray-", dir="/tmp") as place:  # sockets: short paths
        options = ["--head", f"--port={PORT}", "--num-cpus=2", "--num-gpus=0", "--block"]
        options += [f"--temp-dir={place}", "--include-dashboard=false", "--disable-usage-stats"]
        command = [Path(sys.executable).parent / "ray", "start", *options]
        node = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert node.stdout is not None
        assert any("Ray runtime started" in line for line in node.stdout)
        yield f"127.0.0.1:{PORT}"
        node.terminate()  # ends the processes of this node, and of no other cluster
        node.wait(60)


@pytest.mark.slow
def test_actors_on_parts_of_cpus(cluster, tmp_path):
    """Two actors share one CPU; broken checkpoints are skipped; a second run samples nothing."""
    runs = tmp_path / "runs"
    for step in (0, 10, 20):
        save_checkpoint(runs / "good" / f"step_{step}", seed=step)
    broken = copy_broken(runs / "good" / "step_0", runs)
    problems = save_problems(tmp_path, QUERIES)
    more = ("--ray", cluster, "--ray-cpus", "0.5", "--json")
    args = arguments(runs, tmp_path / "out", problems, *more)
    status, out, err = finish(args)
    report = json.loads(out or "{}")
    assert status == 1, err
    assert set(report["failed"]) == set(broken)
    assert report["queries"] == 3 * QUERIES
    for step in (0, 10, 20):
        rows = journal_rows(tmp_path / "out" / "journal" / "good" / f"step_{step}.jsonl")
        assert len({row["key"] for row in rows}) == len(rows) == QUERIES
    again = json.loads(finish(args)[1])
    assert (again["reused"], again["tokens"]) == (3 * QUERIES, 0)


@pytest.mark.slow
def test_an_unknown_task_stops_all_actors(cluster, tmp_path):
    save_checkpoint(tmp_path / "runs" / "step_0")
    problems = save_problems(tmp_path, 2)
    more = ("--ray", cluster, "--tasks", "v0_gt_aime42")
    status, _, err = finish(arguments(tmp_path / "runs", tmp_path / "out", problems, *more))
    assert status == 2
    assert "unknown task 'v0_gt_aime42'" in err
    assert "Traceback" not in err

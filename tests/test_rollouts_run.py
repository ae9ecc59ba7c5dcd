"""The command `v0-bench rollouts` itself, on real checkpoints, killed and taken up again."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from rollout_runs import (
    TASK,
    arguments,
    copy_broken,
    finish,
    journal_rows,
    save_checkpoint,
    save_problems,
    start,
)
from v0_bench.answers import check_many
from v0_bench.pool import Pool

QUERIES = 12
REPEATS = 10


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A policy of two equal checkpoints, five broken ones, and problems."""
    place = tmp_path_factory.mktemp("rollouts")
    save_checkpoint(place / "runs" / "good" / "step_0")
    shutil.copytree(place / "runs" / "good" / "step_0", place / "runs" / "good" / "step_10")
    save_problems(place, QUERIES)
    return place


@pytest.fixture(scope="module")
def whole_run(place):
    """Status, JSON and stderr of a run over good and broken checkpoints, and its output."""
    runs = place / "all"
    shutil.copytree(place / "runs", runs)
    broken = copy_broken(runs / "good" / "step_0", runs)
    args = arguments(runs, place / "out", place / "problems.jsonl")
    status, out, err = finish([*args, "--json", "--price-in", "3", "--price-out", "15"])
    return status, json.loads(out or "{}"), err, place / "out", broken


def test_a_failing_checkpoint_is_reported_and_skipped(whole_run):
    status, report, err, output, expected = whole_run
    assert status == 1, err
    assert {row["checkpoint"] for row in report["checkpoints"]} == {"good/step_0", "good/step_10"}
    assert set(report["failed"]) == set(expected)
    for name, message in expected.items():
        assert message in report["failed"][name]
        assert f"skipped {name}" in err
    assert "Traceback" not in err
    assert "Traceback" in (output / "rollouts.log").read_text()  # for whoever wants to know


def test_every_query_is_sampled_ten_times_and_written_down(whole_run):
    _, report, _, output, _ = whole_run
    assert report["queries"] == 2 * QUERIES
    assert report["reused"] == 0
    tokens = 0
    for step in (0, 10):
        rows = journal_rows(output / "journal" / "good" / f"step_{step}.jsonl")
        assert len({row["key"] for row in rows}) == len(rows) == QUERIES
        assert all(len(row["rollouts"]) == REPEATS for row in rows)
        tokens += sum(rollout["tokens"] for row in rows for rollout in row["rollouts"])
    assert report["tokens"] == tokens


def test_equal_weights_at_two_steps_draw_different_rollouts(whole_run):
    _, _, _, output, _ = whole_run
    texts = [
        [rollout["text"] for row in journal_rows(file) for rollout in row["rollouts"]]
        for file in sorted((output / "journal" / "good").glob("*.jsonl"))
    ]
    assert texts[0] != texts[1]


def test_the_pool_holds_what_lm_eval_scored_with_tokens_and_costs(whole_run, place):
    _, report, _, output, _ = whole_run
    pool = Pool.load(report["pool"])
    assert set(pool.policies["policy"]) == {"good"}
    assert len(pool.outcomes) == 2 * QUERIES
    from safetensors.numpy import load_file

    weights = load_file(place / "runs" / "good" / "step_0" / "model.safetensors")
    counted = sum(tensor.size for tensor in weights.values())
    assert pool.policies["params_b"][0] == counted / 1e9
    answers = pool.queries.set_index("query_id")
    samples = {}
    for file in output.glob(f"lm-eval/good/*/{TASK}/samples_*.jsonl"):
        step = int(file.parent.parent.name.removeprefix("step_"))
        for line in file.read_text().splitlines():
            sample = json.loads(line)
            samples[step, sample["doc"]["text"]] = sample
    assert len(samples) == 2 * QUERIES
    for row in pool.outcomes.itertuples():
        query = answers.loc[row.query_id]
        sample = samples[row.step, query["text"]]
        prompt = sample["arguments"]["gen_args_0"]["arg_0"]
        verdicts = check_many(sample["resps"][0], [query["answer"]] * REPEATS, "integer")
        assert row.mean_reward == np.mean([verdict.correct for verdict in verdicts])
        assert row.n_rollouts == REPEATS
        assert row.tokens_in == len(prompt)  # a character is a token
        assert row.cost == pytest.approx((3 * row.tokens_in + 15 * row.tokens_out) / 1e6)
        assert row.cost_kind == "measured"
        assert 1 <= row.tokens_out <= 6


def test_a_second_run_samples_nothing(whole_run, place):
    _, first, _, output, _ = whole_run
    before = {file: file.read_bytes() for file in output.glob("lm-eval/**/*.json*")}
    args = arguments(place / "runs", output, place / "problems.jsonl")
    status, out, err = finish([*args, "--json"])
    report = json.loads(out)
    assert status == 0, err
    assert (report["queries"], report["reused"], report["tokens"]) == (2 * QUERIES,) * 2 + (0,)
    assert report["checkpoints"][0]["avg@k"] == first["checkpoints"][0]["avg@k"]
    assert {file: file.read_bytes() for file in output.glob("lm-eval/**/*.json*")} == before
    assert Pool.load(report["pool"]).outcomes["cost"].notna().all()  # prices are remembered


def wait_for_rows(file: Path, count: int, process) -> list[dict[str, object]]:
    """The rows of a journal once it has so many; fails if the run ends first."""
    while len(found := journal_rows(file)) < count:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    return found


def children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def workers(pid: int) -> list[int]:
    """The worker processes of a run: children that import this package."""
    return [child for child in children(pid) if b"spawn_main" in _command(child)]


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_a_kill_loses_no_rollout_and_doubles_none(place, tmp_path, victim):
    problems = save_problems(tmp_path, 60)
    runs, output = place / "runs" / "good" / "step_0", tmp_path / "out"
    args = arguments(runs, output, problems, "--chunk", "1", "--json")
    journal = output / "journal" / "good" / "step_0.jsonl"
    process = start(args)
    before = wait_for_rows(journal, 3, process)
    (worker,) = workers(process.pid)
    if victim == "parent":
        held, _, message = finish(args)  # the output is taken meanwhile
        assert held == 2
        assert "another run is writing to" in message
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        status, out, err = finish(args)  # at once: the orphaned worker must be gone, or yield
        report = json.loads(out or "{}")
        assert status == 0, err
        assert report["reused"] >= len(before)
        assert report["queries"] == 60
    else:
        os.kill(worker, signal.SIGKILL)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
    rows = journal_rows(journal)
    assert rows[: len(before)] == before
    assert len({row["key"] for row in rows}) == len(rows) == 60
    assert all(len(row["rollouts"]) == REPEATS for row in rows)
    pool = Pool.load(output / "pool")
    assert len(pool.outcomes) == 60
    assert set(pool.outcomes["n_rollouts"]) == {REPEATS}


def test_an_unknown_task_stops_the_run(place, tmp_path):
    args = arguments(place / "runs", tmp_path / "out", place / "problems.jsonl")
    status, out, err = finish([*args, "--tasks", "v0_gt_aime42"])
    assert (status, out) == (2, ""), err
    assert "error: unknown task 'v0_gt_aime42': did you mean" in err
    assert "Traceback" not in err


def test_mistakes_that_need_no_model(place, tmp_path):
    """Told before anything heavy is loaded, and without touching an output in use."""
    status, _, err = finish(["rollouts", str(tmp_path), "--output", str(tmp_path / "o")])
    assert status == 2
    assert "holds no checkpoint" in err
    output = tmp_path / "out"
    output.mkdir()
    with FileLock(output / ".lock"):
        args = arguments(place / "runs", output, place / "problems.jsonl")
        assert "another run is writing to" in finish(args)[2]
    assert [file.name for file in output.iterdir()] == [".lock"]

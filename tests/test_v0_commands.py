"""`v0-bench train` and `v0-bench predict`, run for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leaderboard_runs import environment, rated_pool
from pools import write_jsonl
from v0_bench.cli import main
from v0_bench.v0.model import V0

SMALL = [
    "backbone=hash",
    "dataset_features=2",
    "head=gp",
    "n_queries=1",
    "d_proj=2",
    "components=2",
    "landmarks=30",
]
SMALL += ["context_size=16", "validation_episodes=2", "validate_every=4"]
CONTEXT = [
    {"text": "Story 1 of apples: which bridges?", "mean_reward": 0.75, "n_rollouts": 4},
    {"text": "Story 2 of apples: which clocks?", "mean_reward": 0, "dataset": "words", "cost": 0.1},
]
QUERIES = [{"text": "Story 3 of apples?", "query_id": "a"}, {"text": ""}, {"text": "x"}]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rated_pool(n_queries=40).save(tmp_path_factory.mktemp("pool") / "rated")


def train(pool: Path, output: Path, *more: str) -> list[str]:
    sets = [word for pair in SMALL for word in ("--set", pair)]
    return ["train", "--pool", str(pool), "--output", str(output), *sets, *more]


def files(folder: Path) -> list[str]:
    write_jsonl(folder / "c.jsonl", CONTEXT)
    write_jsonl(folder / "q.jsonl", QUERIES)
    return ["--context", str(folder / "c.jsonl"), "--queries", str(folder / "q.jsonl")]


def losses(folder: Path) -> list[Any]:
    path = folder / "log.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(row["step"], row["loss"]) for row in rows if "loss" in row]


def test_train_then_predict(pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model = tmp_path / "model"
    assert main(train(pool, model, "--set", "steps=3")) == 0
    assert "interaction weight" in capsys.readouterr().out
    facts = json.loads((model / "config.json").read_text())["facts"]
    fingerprint = json.loads((pool / "pool.json").read_text())["fingerprint"]
    assert facts["data"] == [{"pool": "rated", "fingerprint": fingerprint}]
    assert not (model / "resume").exists()
    assert len(losses(model)) == 3

    arguments = ["predict", *files(tmp_path), "--predictor", str(model)]
    assert main(arguments) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["query_id"] for line in lines] == ["a", "1", "2"]
    direct = V0.from_pretrained(model).predict(
        [(CONTEXT[0]["text"], 0.75, 4), (CONTEXT[1]["text"], 0.0, 1)], [q["text"] for q in QUERIES]
    )
    assert [line["value"] for line in lines] == pytest.approx(direct.tolist(), abs=0.05)
    assert main([*arguments, "--output", str(tmp_path / "out" / "values.jsonl")]) == 0
    written = (tmp_path / "out" / "values.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == lines

    assert main(train(pool, model, "--set", "steps=3")) == 2
    assert "holds a model already" in capsys.readouterr().err


def test_predict_with_a_named_predictor(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = ["predict", *files(tmp_path), "--backbone", "hash", "--predictor"]
    assert main([*arguments, "knn"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main([*arguments, "additive"]) == 2
    assert "call fit first" in capsys.readouterr().err
    assert main([*arguments, "additive", "--pool", str(pool)]) == 0
    values = [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]
    assert all(0 <= value <= 1 for value in values)
    assert main([*arguments, "knnn"]) == 2
    assert "did you mean 'knn" in capsys.readouterr().err
    assert main([*arguments, "./no-such-model"]) == 2
    assert main(["predict", *files(tmp_path), "--predictor", "./no-such-model"]) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"mean_reward": 0.5}, "line 2: 'text' is missing"),
        ({"text": "a"}, "line 2: 'mean_reward' is missing"),
        ({"text": "a", "mean_reward": "high"}, "line 2: mean_reward must be of type float"),
        ({"text": "a", "mean_reward": 1.5}, "line 2: mean_reward must lie in"),
        ({"text": "a", "mean_reward": float("nan")}, "line 2"),
        ({"text": 3, "mean_reward": 0.5}, "line 2: text must be of type str"),
        ({"text": "a", "mean_reward": 0.5, "n_rollouts": 0}, "line 2: n_rollouts must be at"),
        ({"text": "a", "mean_reward": 0.5, "n_rollouts": True}, "line 2: n_rollouts must be of"),
    ],
)
def test_a_faulty_line_is_named(
    row: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = files(tmp_path)
    write_jsonl(tmp_path / "c.jsonl", [CONTEXT[0], row])
    assert main(["predict", *arguments, "--predictor", "context-mean"]) == 2
    error = capsys.readouterr().err
    assert "c.jsonl" in error
    assert message in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "step=3"], "did you mean 'steps'"),
        (["--set", "steps"], "KEY=VALUE"),
        (["--set", "learning_rate=fast"], "learning_rate must be of type float"),
        (["--preset", "papre"], "did you mean 'paper'"),
        (["--protocol", "strict", "--fold", "3"], "has folds 0 to 0"),
        (["--protocol", "strickt"], "did you mean 'strict'"),
        (["--device", "gpu"], "Unknown device"),
        (["--set", "components=90"], "takes up to 33 features"),
    ],
)
def test_mistakes_of_train_are_told(
    arguments: list[str], message: str, pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(train(pool, tmp_path / "m", *arguments)) == 2
    assert message in capsys.readouterr().err


def test_scientific_notation_is_a_number() -> None:
    from v0_bench.cli.train import _settings

    assert _settings(["learning_rate=1e-4", "backbone=hash", "connector=null"]) == {
        "learning_rate": 1e-4,
        "backbone": "hash",
        "connector": None,
    }


def test_a_protocol_hides_its_test_part(pool: Path, tmp_path: Path) -> None:
    from v0_bench import Pool
    from v0_bench.cli.train import _outcomes
    from v0_bench.protocols import make_folds

    loaded = Pool.load(pool)
    shown = _outcomes(loaded, "unseen-policy", 1, 0)
    (stage,) = make_folds(loaded, "unseen-policy", 0)[1].stages
    assert set(shown.queries.query_ids) == set(stage.train.queries.query_ids)
    tested = {episode.checkpoint.policy for episode in stage.episodes}
    assert not tested & {checkpoint.policy for checkpoint in shown.checkpoints}
    assert len(_outcomes(loaded, None, 0, 0)) == len(loaded.outcomes)
    stepped = rated_pool(n_queries=40, steps=(1, 2))
    joined = _outcomes(stepped, "sequential", 0, 0)
    assert {checkpoint.step for checkpoint in joined.checkpoints} == {1, 2}


def test_killed_and_resumed_the_losses_are_those_of_a_whole_run(pool: Path, tmp_path: Path) -> None:
    settings = ["--set", "steps=30", "--set", "patience=100", "--set", "save_minutes=0.0"]
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    words = [sys.executable, "-c", "import sys; from v0_bench.cli import main; sys.exit(main())"]
    one_thread = environment(OMP_NUM_THREADS="1")  # another number of threads, other last bits
    child = subprocess.Popen(
        [*words, *train(pool, cut, *settings)], env=one_thread, start_new_session=True
    )
    deadline = time.monotonic() + 300
    while len(losses(cut)) < 5 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    before = losses(cut)
    assert 5 <= len(before) < 30
    assert not (cut / "config.json").exists()
    for folder in (cut, whole):
        subprocess.run([*words, *train(pool, folder, *settings)], env=one_thread, check=True)
    assert losses(cut) == losses(whole)
    assert len(losses(cut)) == 30
    pairs = [("Story 1 of apples: which bridges?", 0.75, 4)]
    first, second = (V0.from_pretrained(path).predict(pairs, ["a", "b"]) for path in (cut, whole))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_two_processes_train_as_one(pool: Path, tmp_path: Path) -> None:
    """Without dropout, the mean gradient of two processes is that of one with all episodes."""
    settings = ["--set", "steps=4", "--set", "dropout=0.0", "--set", "learning_rate=0.01"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(train(pool, one, *settings)) == 0
    code = tmp_path / "run.py"
    code.write_text("import sys\nfrom v0_bench.cli import main\nsys.exit(main())\n")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launch += ["--master-port", "29517", str(code)]
    done = subprocess.run(
        [*launch, *train(pool, two, *settings)],
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("interaction weight") == 1
    for (step, loss), (other_step, other) in zip(losses(one), losses(two), strict=True):
        assert step == other_step
        assert loss == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("command", ["train", "predict"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"v0-bench {command} --" in capsys.readouterr().out

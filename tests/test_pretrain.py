"""Pre-training: a short run, a run that is killed, its references, and the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from v0_bench import cli
from v0_bench.errors import V0BenchError
from v0_bench.v0.heads.saved import WEIGHTS, load_head
from v0_bench.v0.pretrain import Run, pretrain, training_batch
from v0_bench.v0.prior import Episodes, draw
from v0_bench.v0.references import PENALTIES, context_mean, logistic

KILLED = """
import sys, torch
from pathlib import Path
from v0_bench.v0.pretrain import Run, pretrain
torch.set_num_threads(1)
pretrain(Run("gp", 12), Path(sys.argv[1]), "cpu", 4, 1, 1)
"""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def rows(folder: Path, key: str) -> dict[int, object]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return {row["step"]: row[key] for row in map(json.loads, lines) if key in row}


@pytest.mark.parametrize("head", ["gp", "icl"])
def test_a_short_run_leaves_a_head_and_a_log(head: str, tmp_path: Path) -> None:
    trained = pretrain(Run(head, 3), tmp_path, validate_every=2, validation_episodes=1)
    batch = training_batch(0, 99)
    arguments = (batch.features, batch.labels, batch.counts, batch.mask, batch.queries)
    with torch.no_grad():
        assert torch.equal(load_head(tmp_path)(*arguments), trained(*arguments))
        start = load_head(WEIGHTS / "head-gp")
        assert head == "gp" or not torch.equal(trained(*arguments), start(*arguments))
    validation = rows(tmp_path, "validation")
    assert sorted(validation) == [2, 3]
    assert all(scores["excess"] > 0 for scores in validation.values())
    references = rows(tmp_path, "references")[0]
    assert set(references) == {"context-mean", "logistic"} | ({"gp"} if head == "icl" else set())
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["run"] == {"head": head, "steps": 3, "seed": 0, "gp": None}
    assert config["validation"] == validation[3]
    again = pretrain(Run(head, 3), tmp_path, validate_every=2, validation_episodes=1)
    with torch.no_grad():
        assert torch.equal(again(*arguments), trained(*arguments))


def test_a_killed_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    pretrain(Run("gp", 12), whole, validate_every=4, validation_episodes=1, save_every=1)
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(killed)])
    deadline = time.monotonic() + 300
    while not (killed / "resume.safetensors").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = max(rows(killed, "loss"), default=0)
    with (killed / "log.jsonl").open("a") as log:
        log.write('{"step": 13, "lo')  # a line cut short
    pretrain(Run("gp", 12), killed, validate_every=4, validation_episodes=1, save_every=1)
    assert done < 12
    for key in ("loss", "validation", "references"):
        assert rows(killed, key) == rows(whole, key)
    both = [(folder / "model.safetensors").read_bytes() for folder in (whole, killed)]
    assert both[0] == both[1]


def test_batches_differ_by_step_and_seed_and_fit_in_memory() -> None:
    batches = [training_batch(seed, step) for seed, step in ((0, 0), (0, 1), (1, 0))]
    values = [batch.values[0, :8].tolist() for batch in batches]
    assert values[0] != values[1] != values[2] != values[0]
    for step in range(30):
        episodes, context, _ = training_batch(0, step).features.shape
        assert episodes <= 16
        assert episodes * (context + 64) <= 16 * 320


def test_references_are_what_they_say() -> None:
    batch = draw(torch.Generator().manual_seed(0), 6, 200, 20)
    batch.features[..., 5:] = 0
    batch.queries[..., 5:] = 0
    means = torch.sigmoid(context_mean(batch))
    for i in range(6):
        labels = batch.labels[i][batch.mask[i]]
        expected = (float(labels.sum()) + 0.5) / (len(labels) + 1)
        assert means[i].tolist() == pytest.approx([expected] * 20, abs=1e-5)
    ours = logistic(batch).numpy()
    for i in np.flatnonzero(batch.mask.sum(dim=1) > 100):
        by_descent = [_descended(batch, i, penalty) for penalty in PENALTIES]
        assert min(np.abs(ours[i] - logits).max() for logits in by_descent) < 1e-3


def _descended(batch: Episodes, i: int, penalty: float) -> np.ndarray:
    """The same penalised regression by a general minimiser: logits of the queries."""
    mask = batch.mask[i].numpy()
    labels, counts = batch.labels[i].numpy()[mask], batch.counts[i].numpy()[mask]
    ability = np.log((labels.sum() + 0.5) / (len(labels) - labels.sum() + 0.5))

    def scores(coefficients: np.ndarray, features: np.ndarray) -> np.ndarray:
        return coefficients[0] + features @ coefficients[1:]

    def objective(coefficients: np.ndarray) -> float:
        logits = scores(coefficients, batch.features[i].numpy()[mask, :5])
        losses = np.logaddexp(0, logits) - labels * logits
        pulls = (0.1, ability), (10.0, 1.0), *[(penalty, 0.0)] * 4
        pull = sum(p * (c - to) ** 2 for c, (p, to) in zip(coefficients, pulls, strict=True))
        return float(np.sum(counts / (counts + 1) * losses) + pull / 2)

    found = minimize(objective, np.zeros(6), options={"gtol": 1e-7})
    return scores(found.x, batch.queries[i].numpy()[:, :5])


def test_shipped_heads_beat_regression_in_their_logs() -> None:
    for kind in ("gp", "icl"):
        config = json.loads((WEIGHTS / f"head-{kind}" / "config.json").read_text())
        excess = config["validation"]["excess"]
        assert excess < 0.85 * config["references"]["logistic"]["excess"]
        assert excess < 0.5 * config["references"]["context-mean"]["excess"]
        validation = rows(WEIGHTS / f"head-{kind}", "validation")
        assert validation[config["step"]]["excess"] == excess


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    pretrain(Run("gp", 1), tmp_path, validation_episodes=1)
    with pytest.raises(V0BenchError, match="holds another run"):
        pretrain(Run("gp", 2), tmp_path, validation_episodes=1)
    (tmp_path / "resume.safetensors").write_bytes(b"cut")
    with pytest.raises(V0BenchError, match="cannot resume"):
        pretrain(Run("gp", 1), tmp_path, validation_episodes=1)
    (tmp_path / "resume.safetensors").unlink()
    with pytest.raises(V0BenchError, match="holds a head already"):
        pretrain(Run("gp", 1), tmp_path, validation_episodes=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head", "gpp", "--steps", "1"], "did you mean 'gp'"),
        (["--head", "gp", "--steps", "0"], "steps must be at least 1"),
        (["--head", "gp", "--steps", "1", "--validate-every", "0"], "validate_every must be"),
        (["--head", "gp", "--steps", "1", "--device", "sofa"], "device 'sofa' is not there"),
        (["--head", "icl", "--steps", "1", "--gp", "nowhere"], "nowhere holds no head"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pretrain-head", "--output", str(tmp_path / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_command_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain-head", "--head", "gp", "--steps", "2", "--output", str(tmp_path)]
    assert cli.main([*words, "--seed", "7", "--validation-episodes", "1"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}\n"
    assert json.loads((tmp_path / "config.json").read_text())["run"]["seed"] == 7

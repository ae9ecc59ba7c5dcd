"""`tabpfn-embedding`: its values, its rows in a leaderboard, and that it never reaches out."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest

from leaderboard_runs import environment, rated_pool, run_leaderboard
from outcome_samples import context, queries
from tabpfn_checkpoint import save_checkpoint
from v0_bench import Queries, V0BenchError
from v0_bench.baselines import tabpfn_embedding
from v0_bench.baselines.tabpfn_embedding import TabPFNEmbedding
from v0_bench.predictors import check_values


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_checkpoint(tmp_path_factory.mktemp("tabpfn") / "small.ckpt"))


@pytest.fixture
def predictor(weights: str) -> TabPFNEmbedding:
    return TabPFNEmbedding(weights, n_estimators=2, backbone="hash")


def test_values_depend_on_the_query_alone(
    predictor: TabPFNEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on the queries beside it, nor on how many are asked at once."""
    seen, asked = context(40), queries(9)
    values = predictor.predict(seen, asked)
    check_values(values, 9, predictor.name)
    assert values.std() > 1e-4
    twice = Queries.from_texts([*asked.texts, *reversed(asked.texts)])
    monkeypatch.setattr(tabpfn_embedding, "QUERIES_AT_ONCE", 4)
    both = predictor.predict(seen, twice)
    np.testing.assert_allclose(both, [*values, *values[::-1]], atol=1e-5)


def test_the_seed_and_the_context_decide(weights: str, predictor: TabPFNEmbedding) -> None:
    seen, asked = context(40), queries(9)
    values = predictor.predict(seen, asked)
    np.testing.assert_array_equal(predictor.predict(seen, asked), values)
    other = TabPFNEmbedding(weights, n_estimators=2, backbone="hash", seed=1)
    assert not np.allclose(other.predict(seen, asked), values)
    assert not np.allclose(predictor.predict(context(40, seed=5), asked), values)


def test_the_newest_items_count(weights: str, predictor: TabPFNEmbedding) -> None:
    seen, asked = context(60), queries(5)
    short = TabPFNEmbedding(weights, n_estimators=2, memory=40, backbone="hash")
    expected = predictor.predict(seen.newest(40), asked)
    np.testing.assert_array_equal(short.predict(seen, asked), expected)


@pytest.mark.parametrize(
    ("rates", "value"), [([], 0.5), ([0.0] * 4, 0.1), ([1.0] * 9, 0.95), ([0.2, 0.4], 1.1 / 3)]
)
def test_a_context_of_one_class_gives_its_smoothed_mean(
    predictor: TabPFNEmbedding, rates: list[float], value: float
) -> None:
    seen = context(len(rates), rates=np.array(rates))
    np.testing.assert_allclose(predictor.predict(seen, queries(3)), value)


def test_no_network_is_used(predictor: TabPFNEmbedding, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    predictor.predict(context(20), queries(2))
    assert TabPFNEmbedding("/no/such.ckpt").why_unavailable()


def test_an_absent_gpu_is_an_error(weights: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(V0BenchError, match="sees no CUDA GPU"):
        TabPFNEmbedding(weights, backbone="hash", device="cuda").predict(context(20), queries(2))


def test_a_leaderboard_has_its_row(weights: str, tmp_path: Path) -> None:
    rated_pool(n_queries=40, policies=("m0", "m1", "m2")).save(tmp_path / "pool")
    choice = ("--pool", tmp_path / "pool", "--predictors", "context-mean,tabpfn-embedding")
    run = ("--seeds", 1, "--context-size", 12, "--output")
    env = environment(V0_BENCH_TABPFN=weights, HF_HUB_OFFLINE="1")
    for place, status in ((weights, "ok"), ("/no/such.ckpt", "not_applicable")):
        output = tmp_path / status
        done = run_leaderboard(*choice, *run, output, env=env | {"V0_BENCH_TABPFN": place})
        assert done.returncode == 0, done.stderr
        rows = json.loads((output / "leaderboard.json").read_text())["rows"]
        (row,) = [row for row in rows if row["predictor"] == "tabpfn-embedding"]
        assert row["status"] == status, row["reason"]
        if status == "ok":
            assert 0 <= row["mse"]["value"] <= 1
        else:
            assert "non-commercial" in row["reason"]

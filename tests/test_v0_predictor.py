"""The predictors `v0` and `v0-paper`, through the contract and through a small leaderboard."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import outcome_samples as samples
from leaderboard_runs import rated_pool, run_leaderboard
from tabpfn_checkpoint import save_checkpoint
from tiny_models import save_tiny_qwen
from v0_bench import V0, Pool, Queries, create_predictor
from v0_bench.baselines.v0 import V0Paper, V0Predictor
from v0_bench.pool.default import PACKAGED_POOL
from v0_bench.protocols import make_folds
from v0_parts import outcomes


def small(**changes: object) -> V0Predictor:
    values = {"head": "gp", "landmarks": 40, "components": 3, "backbone": "hash"} | changes
    return V0Predictor(**values)  # type: ignore[arg-type]


def test_difficulty_and_taste_are_learned() -> None:
    """Policies that differ by topic: better than the context's mean on new policies and texts."""
    pool = outcomes(150, 13, seed=2, interaction=1.5)
    rng = np.random.default_rng(0)
    held = pool.checkpoint_index >= 10
    old = pool.query_index < 110
    from v0_bench.v0.sampling import _context, _queries, subset

    predictor = small().fit(subset(pool, np.flatnonzero(~held & old)))
    mine, mean = [], []
    for checkpoint in (10, 11, 12):
        rows = pool.checkpoint_index == checkpoint
        context = _context(pool, rng.permutation(np.flatnonzero(rows & old)))
        tested = np.flatnonzero(rows & ~old)
        values = predictor.predict(context, _queries(pool.queries, pool.query_index[tested]))
        mine.append(np.mean((values - pool.success_rates[tested]) ** 2))
        mean.append(np.mean((context.mean - pool.success_rates[tested]) ** 2))
    assert np.mean(mine) < 0.5 * np.mean(mean)


def test_update_is_a_fit_on_everything_so_far() -> None:
    early, late = outcomes(40, 4, steps=(1,)), outcomes(40, 4, seed=1, steps=(2,))
    seen, asked = samples.context(30), samples.queries(10)
    updated = small().fit(early).update(late).predict(seen, asked)
    joined = small().fit(early.join(late)).predict(seen, asked)
    np.testing.assert_array_equal(updated, joined)


def test_between_doublings_an_update_keeps_the_interaction_weight() -> None:
    early = outcomes(40, 6, steps=(1, 2, 3), interaction=2.0)
    late = outcomes(40, 2, seed=1, steps=(4,))
    predictor = small().fit(early)
    weight, seen, asked = predictor.model_.interaction_weight, samples.context(30), ["a b"]
    before = predictor.predict(seen, Queries.from_texts(asked))
    predictor.update(late)
    assert len(predictor.train_) == len(early) + len(late) < 2 * len(early)
    assert predictor.model_.interaction_weight == weight
    assert predictor.model_.featuriser.knows(late.queries.texts).all()
    assert predictor.predict(seen, Queries.from_texts(asked)) != before


def test_a_long_context_is_cut_to_the_newest_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    predictor, asked = small().fit(outcomes(40, 4)), samples.queries(5)
    long = samples.context(1100)
    values = predictor.predict(long, asked)
    np.testing.assert_array_equal(values, predictor.predict(long.newest(1024), asked))
    assert not recwarn.list


def test_unfitted_it_is_the_packaged_model() -> None:
    seen, asked = samples.context(5), samples.queries(3)
    values = create_predictor("v0").predict(seen, asked)
    np.testing.assert_array_equal(values, V0.from_pretrained("micro").predict(seen, asked))


def test_the_packaged_model_tells_its_data_and_knows_what_is_hard() -> None:
    """It has seen the packaged pool's training part, and ranks that pool's test outcomes."""
    model = V0.from_pretrained("micro")
    pool = Pool.load(PACKAGED_POOL)
    (data,) = model.facts["data"]
    assert (data["fingerprint"], data["protocol"]) == (pool.fingerprint, "sequential")
    (fold,) = make_folds(pool, "sequential")
    for episode in fold.stages[-1].episodes:
        values = model.predict(episode.context, episode.queries)
        rates = pool.outcomes["mean_reward"].to_numpy()[episode.rows]
        assert spearmanr(values, rates).statistic > 0.6
        assert np.mean((values - rates) ** 2) < 0.6 * np.mean((episode.context.mean - rates) ** 2)


def test_an_absent_head_makes_it_unavailable(tmp_path: Path) -> None:
    assert "holds no head" in str(small(head_weights=str(tmp_path)).why_unavailable())
    assert small().why_unavailable() is None


def test_paper_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("V0_BENCH_TABPFN", str(tmp_path / "none.ckpt"))
    assert "--backbone FOLDER" in str(V0Paper(backbone="minilm").why_unavailable())
    backbone = save_tiny_qwen(tmp_path / "qwen")
    assert "neither a file nor" in str(V0Paper(backbone=str(backbone)).why_unavailable())
    weights = save_checkpoint(tmp_path / "pfn.ckpt")
    assert V0Paper(backbone=str(backbone), weights=str(weights)).why_unavailable() is None


def test_paper_with_small_weights(tmp_path: Path) -> None:
    predictor = V0Paper(
        str(save_checkpoint(tmp_path / "pfn.ckpt")),
        steps=2,
        backbone=str(save_tiny_qwen(tmp_path / "qwen")),
    )
    predictor.fit(outcomes(20, 4))
    model = predictor.model_
    assert (model.n_features, model.interaction_weight) == (1008, 1.0)
    assert model.featuriser is None
    trained = sum(p.numel() for p in model.connector.parameters())
    assert trained == 268_838 - (1024 - 16) * (128 + 6)  # the paper's, with a state of 16 numbers
    values = predictor.predict(samples.context(12), samples.queries(4))
    assert ((values >= 0) & (values <= 1)).all()


def test_leaderboard_has_its_rows(tmp_path: Path) -> None:
    pool = rated_pool(n_queries=40).save(tmp_path / "pool")
    done = run_leaderboard(
        "--pool",
        pool,
        "--predictors",
        "v0,v0-paper,context-mean",
        "--output",
        tmp_path / "out",
        "--context-size",
        "16",
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    rows = {row["predictor"]: row for row in document["rows"]}
    assert rows["v0-paper"]["status"] == "not_applicable"
    if V0Predictor().why_unavailable() is None:
        assert rows["v0"]["status"] == "ok"
        assert 0 < rows["v0"]["mse"]["value"] < 0.25
    else:
        assert rows["v0"]["status"] == "not_applicable"

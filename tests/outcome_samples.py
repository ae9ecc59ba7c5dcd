"""Small invented contexts and training outcomes that several test modules share."""

from __future__ import annotations

import numpy as np

from v0_bench import Context, Queries, TrainingOutcomes
from v0_bench.episode import Checkpoint

TOPICS = ("sum of primes", "largest rectangle", "reverse a string", "capital city", "root of x")


def texts(n: int, seed: int = 0) -> list[str]:
    """Distinct texts on five topics; the topic is the first word."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(len(TOPICS), size=n)
    return [
        f"{TOPICS[topic]} in case {seed}-{i}" + " more" * int(extra)
        for i, (topic, extra) in enumerate(zip(topics, rng.integers(9, size=n), strict=True))
    ]


def datasets(of: list[str]) -> tuple[str, ...]:
    """The topic of each text, which stands for its data set."""
    return tuple(text.split()[0] for text in of)


def context(n: int, seed: int = 0, rates: np.ndarray | None = None) -> Context:
    """A context of n items whose arrays cannot be written to."""
    rng = np.random.default_rng(seed + 1)
    shown = texts(n, seed)
    counts = rng.choice([1, 10], size=n)
    if rates is None:
        rates = rng.binomial(counts, rng.beta(0.5, 0.5, size=n)) / counts
    arrays = [np.asarray(rates, dtype=float), counts, np.full(n, np.nan)]
    for array in arrays:
        array.flags.writeable = False
    ids = tuple(f"c{seed}-{i}" for i in range(n))
    return Context(
        tuple(shown), arrays[0], arrays[1], ids, datasets(shown), arrays[2], "some-policy", 3
    )


def queries(n: int, seed: int = 100) -> Queries:
    """n queries that no context or training outcome holds."""
    asked = texts(n, seed)
    return Queries(tuple(asked), tuple(f"q{seed}-{i}" for i in range(n)), datasets(asked))


def training(
    n_queries: int = 40, n_checkpoints: int = 5, seed: int = 0, step: int | None = None
) -> TrainingOutcomes:
    """Outcomes of every checkpoint on every query, drawn from additive log odds, 10 rollouts."""
    rng = np.random.default_rng(seed + 2)
    asked = texts(n_queries, seed)
    query, checkpoint = np.divmod(np.arange(n_queries * n_checkpoints), n_checkpoints)
    odds = rng.normal(0, 1.5, n_queries)[query] + rng.normal(0, 1.0, n_checkpoints)[checkpoint]
    rates = rng.binomial(10, 1 / (1 + np.exp(-odds))) / 10
    arrays = [query, checkpoint, rates, np.full(len(rates), 10), np.full(len(rates), np.nan)]
    for array in arrays:
        array.flags.writeable = False
    return TrainingOutcomes(
        Queries(tuple(asked), tuple(f"t{seed}-{i}" for i in range(n_queries)), datasets(asked)),
        tuple(Checkpoint(f"policy-{j}", step, f"family-{j}") for j in range(n_checkpoints)),
        *arrays,
    )

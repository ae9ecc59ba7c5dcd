"""Small synthetic pools for the tests of the protocols, and a fingerprint of finished folds."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import cache

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from v0_bench.pool import Pool
from v0_bench.protocols import Fold

# 5-letter words of our own; a text is ten of them, so texts of different groups share no shingle
_WORDS = [a + b + c for a in ("bra", "kel", "mon", "tif", "zug") for b in "aeiou" for c in "lnrst"]


def text_of(number: int, variant: int = 0) -> str:
    """Ten invented words; variants of one number differ in case and punctuation alone."""
    words = random.Random(number).choices(_WORDS, k=10)
    return [" ".join(words), " ".join(words).upper() + "!", ", ".join(words) + "?"][variant % 3]


def make_pool(
    family_of: Sequence[str | None],
    n_queries: int = 40,
    steps: Sequence[int | None] = (None,),
    duplicates: int = 0,
    datasets: int = 2,
    missing: float = 0.0,
    roles: bool = False,
    seed: int = 0,
) -> Pool:
    """A pool with one policy per entry of `family_of`, each at every step.

    The first `duplicates` queries have two reworded copies each. A share `missing` of the outcomes
    is left out. With `roles`, the source fixed roles (or none) row by row.
    """
    rng = np.random.default_rng(seed)
    queries = [
        {
            "query_id": f"q{number:03d}{'abc'[variant]}",
            "dataset": f"set{number % datasets}",
            "text": text_of(number, variant),
        }
        for number in range(n_queries)
        for variant in range(3 if number < duplicates else 1)
    ]
    policies = [{"policy": f"p{i}", "family": f} for i, f in enumerate(family_of)]
    outcomes = [
        {
            "query_id": query["query_id"],
            "policy": policy["policy"],
            "step": step,
            "mean_reward": rng.integers(0, 11) / 10,
            "n_rollouts": 10,
            "cost": rng.random(),
            "role": rng.choice(["context", "train", "test", None]) if roles else None,
        }
        for policy in policies
        for step in steps
        for query in queries
    ]
    keep = rng.random(len(outcomes)) >= missing
    keep[0] = True
    frame = pd.DataFrame(outcomes)[keep]
    return Pool("synthetic", pd.DataFrame(queries), pd.DataFrame(policies), frame)


def shuffled(pool: Pool, seed: int = 1) -> Pool:
    """The same pool with the rows of its tables in another order."""
    queries, policies, outcomes = (
        table.sample(frac=1, random_state=seed)
        for table in (pool.queries, pool.policies, pool.outcomes)
    )
    return Pool(pool.name, queries, policies, outcomes)


FAMILIES = [
    ("fa",),
    (None, None),
    ("fa", "fa", "fb"),
    ("fa", None, "fc", "fa", "fb"),
    tuple("abcdefg"),
]
STEPS = [(7,), (300, 20), (1, 5, 2, 40)]


@st.composite
def pools(draw: st.DrawFn, families: int = 1, steps: bool | None = None) -> Pool:
    """Pools of one to seven policies, at least `families` of them apart, with gaps and duplicates.

    `steps` says whether there are training steps; either if None.
    """
    with_steps = draw(st.booleans()) if steps is None else steps
    return _known_pool(
        draw(st.sampled_from([f for f in FAMILIES if len(set(f)) >= families])),
        n_queries=draw(st.sampled_from([1, 2, 5, 23])),
        steps=draw(st.sampled_from(STEPS)) if with_steps else (None,),
        duplicates=draw(st.sampled_from([0, 1, 3])),
        datasets=draw(st.sampled_from([1, 3])),
        missing=draw(st.sampled_from([0.0, 0.1, 0.6])),
        roles=with_steps and draw(st.booleans()),
        seed=draw(st.integers(0, 9)),
    )


_known_pool = cache(make_pool)  # pools are read-only; to make one is slow beside the rest


def digest(folds: Sequence[Fold], leave_out: Sequence[str] = ()) -> str:
    """sha256 of every value in the folds, arrays with their types; fields can be left out."""
    sha = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, np.ndarray):
            sha.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        elif is_dataclass(value):
            for field in fields(value):
                if field.name not in leave_out:
                    sha.update(field.name.encode())
                    add(getattr(value, field.name))
        elif isinstance(value, list | tuple):
            sha.update(f"{len(value)}:".encode())
            for item in value:
                add(item)
        else:
            sha.update(f"{type(value).__name__}{value!r}".encode())

    add(list(folds))
    return sha.hexdigest()

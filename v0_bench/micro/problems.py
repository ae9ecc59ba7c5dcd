"""Sets of problems: fixed by a seed, held-out ones disjoint from those to train on.

Which of the two sets a problem may be in hangs on a hash of its family, its wording and its facts,
the numbers that its answer depends on. So no seed, name or thing brings it into the other set.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from random import Random

from v0_bench.micro.families import FAMILIES, LEVELS

HELD_PER_LEVEL = 8  # x 5 levels x 20 families = 800 problems
TRAIN_PER_LEVEL = 32  # 3,200 problems
HELD_OUT_OF = 4  # one in so many pairs of facts and wording is held out


@dataclass(frozen=True)
class Problem:
    """A word problem with its answer.

    `family` is its skill family, `level` its difficulty (1 to 5), `wording` the number of its
    wording, `facts` all that the answer depends on.
    """

    query_id: str
    family: str
    level: int
    wording: int
    facts: tuple[object, ...]
    text: str
    answer: str


def held_out() -> list[Problem]:
    """The fixed held-out set: 800 problems, by family and level."""
    return make_problems("held", HELD_PER_LEVEL)


def training_set() -> list[Problem]:
    """The fixed set for reinforcement learning: 3,200 problems, by family and level."""
    return make_problems("train", TRAIN_PER_LEVEL)


def make_problems(split: str, per_level: int, seed: int = 0) -> list[Problem]:
    """Problems of all families, `per_level` of each level, no two with equal facts and wording.

    `split` is "held" or "train"; the ids are FAMILY-SPLIT-NUMBER.
    """
    problems = []
    for family in FAMILIES:
        seen: set[tuple[object, ...]] = set()
        for level in LEVELS:
            rng = Random(f"{seed}/{split}/{family}/{level}")
            wanted = len(seen) + per_level
            while len(seen) < wanted:
                problem = draw(rng, family, level, split, f"{family}-{split}-{len(seen):03d}")
                key = (problem.facts, problem.wording)
                if key not in seen:
                    seen.add(key)
                    problems.append(problem)
    return problems


def draw(rng: Random, family: str, level: int, split: str, query_id: str = "") -> Problem:
    """One problem of a family, level and split; copies of earlier draws may occur."""
    while True:
        draft = FAMILIES[family](rng, level)
        wording = rng.randrange(len(draft.wordings))
        if split_of(family, wording, draft.facts) == split:
            return Problem(
                query_id,
                family,
                level,
                wording,
                draft.facts,
                draft.wordings[wording],
                str(draft.answer),
            )


def split_of(family: str, wording: int, facts: tuple[object, ...]) -> str:
    """ "held" for a fourth of all problems, "train" for the others."""
    digest = hashlib.sha256(f"{family} {wording} {facts!r}".encode()).digest()
    return "held" if int.from_bytes(digest[:8]) % HELD_OUT_OF == 0 else "train"

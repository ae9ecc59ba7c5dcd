"""Requests that are copies of one query, gathered and dealt out again.

lm-eval asks for k rollouts of a query by k requests that are one and the same object.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


@dataclass(frozen=True, eq=False)
class Query:
    """A request with the number of its copies."""

    request: Instance
    repeats: int

    @property
    def prompt(self) -> str:
        """The text the model reads."""
        return str(self.request.args[0])

    @property
    def options(self) -> dict[str, Any]:
        """How to generate, in lm-eval's words."""
        return dict(self.request.args[1])


def by_query(requests: Sequence[Instance]) -> list[Query]:
    """The distinct requests in their order, each with the number of its copies."""
    repeats = Counter(map(id, requests))
    distinct = {id(request): request for request in requests}
    return [Query(request, repeats[key]) for key, request in distinct.items()]


def batches(queries: Sequence[Query], rollouts: int) -> Iterator[list[Query]]:
    """Queries with equal options and repeats, longest prompts first, `rollouts` or fewer a batch.

    A batch holds at least one query.
    """
    alike: dict[str, list[Query]] = {}
    for query in queries:
        key = json.dumps([query.repeats, query.options], sort_keys=True, default=str)
        alike.setdefault(key, []).append(query)
    for group in alike.values():
        group.sort(key=lambda query: -len(query.prompt))
        size = max(1, rollouts // group[0].repeats)
        for start in range(0, len(group), size):
            yield group[start : start + size]


def in_order(requests: Sequence[Instance], answers: Mapping[Query, Sequence[str]]) -> list[str]:
    """The rollouts of each query dealt out to its copies."""
    left = {id(query.request): iter(rollouts) for query, rollouts in answers.items()}
    return [next(left[id(request)]) for request in requests]

"""Families: which policies of a pool are of one lineage (a base model, its fine-tunes and hosts).

Three steps: a rule on the name, a committed table of lineages that names do not show
(`family_overrides.toml`), and the outcomes themselves: policies that fail and succeed on the same
queries, beyond what the queries' difficulty explains, are put in one family.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import pandas as pd

MERGE_CORRELATION = 0.5
MIN_COMMON_QUERIES = 50

_SIZE = re.compile(r"\d+(\.\d+)?[bm]|\d+x\d+(\.\d+)?b|[ae]\d+(\.\d+)?b|\d+k")
_POINT_RELEASE = re.compile(r"0\d+|v0\d*(\.\d+)*")
_DATE = re.compile(
    r"(?<![\d.])((19|20)\d\d-\d\d-\d\d|\d\d-\d\d-\d\d|\d\d-\d\d|\d{8}|\d{6}|\d{4})(?![\d.a-z])"
)
_QUANTISATION = re.compile(
    r"(?<![a-z\d.])((mx|nv)?fp\d+|bf16|int\d+|\d-?bit|i?q\d(_[\dksmlx]+)*|w\d+a\d+"
    r"|awq|gptq|gguf|exl2|mlx)(?![a-z\d])"
)
_VARIANT = re.compile(
    "instruct|inst|ins|chat|it|base|hf|pt|sft|dpo|rlhf|grpo|ppo|rl|turbo|latest|alpha|beta|core|plus"
    "|preview|exp|experimental|thinking|think|reasoning|high|med|medium|low|n=1"
    "|nano|tiny|mini|small|large|flash|lite|pro|ultra|haiku|sonnet|opus"
    "|jan|feb|march|april|may|june|july|aug|sept|oct|nov|dec"
)
_HOST = re.compile(
    "together|fireworks|sambanova|hyperbolic|groq|deepinfra|azure|bedrock|openrouter"
)
_MAKER = re.compile(
    "meta|google|openai|anthropic|mistralai|microsoft|nvidia|cohere|c4ai|databricks|ibm"
)
_DETAILS = (_SIZE, _POINT_RELEASE, _VARIANT, _HOST)


@dataclass(frozen=True)
class FamilyAssignment:
    """The family of every policy, and the pairs of policies whose outcomes moved together.

    `merged` lists (policy, policy, correlation), highest correlation first.
    """

    families: dict[str, str]
    merged: list[tuple[str, str, float]]


def family_of(policy: str) -> str:
    """Name of a model's family, read from the policy's name alone; lower-case.

    Strips organisation, host, size, date, quantisation and variant, and keeps the version:
    "acme/Foo2-7B-Instruct-2024-05-13@host" gives "foo-2". A name of which nothing is left is
    returned whole, in lower case.
    """
    name = _model_part(policy.lower().strip())
    name = re.sub(r"[()\[\],]", " ", name).strip().replace(" ", "-")
    name = _QUANTISATION.sub("", name)
    name = re.sub(r"(?<=\d)_(?=\d)", ".", name).replace("_", "-")
    name = _DATE.sub("", name)
    # "3-5" between hyphens is a version written without its point.
    name = re.sub(r"(?<=-)(\d)-(\d)(?=-|$)", r"\1.\2", name)
    words = [word for word in name.split("-") if word and not _is_detail(word)]
    if len(words) > 1 and _MAKER.fullmatch(words[0]):
        words = words[1:]
    # "llama3" and "llama-3" are one name; "o1", "v2" and "r1" stay whole.
    return re.sub(r"(?<=[a-z]{2})(?=\d)", "-", "-".join(words)) or policy.lower()


def assign_families(policies: Sequence[str]) -> dict[str, str]:
    """Family of every policy: the table of known lineages first, else the name rule."""
    by_policy, by_lineage = _overrides()
    families = {}
    for policy in policies:
        name = family_of(policy)
        families[policy] = by_policy.get(policy.lower(), by_lineage.get(name, name))
    return families


def correlated_policies(
    outcomes: pd.DataFrame,
    threshold: float = MERGE_CORRELATION,
    min_common: int = MIN_COMMON_QUERIES,
) -> list[tuple[str, str, float]]:
    """Pairs of policies whose residual outcomes correlate at `threshold` or more.

    The residual of a checkpoint on a query is its success rate minus the query's mean over all
    checkpoints; a policy's is its mean over steps. The correlation is Pearson's, over the queries
    both policies tried. Pairs with under `min_common` common queries, or with residuals that do
    not vary there, are never listed.

    Args:
        outcomes: columns `query_id`, `policy`, `mean_reward`.

    Returns:
        (policy, policy, correlation), the two in alphabetical order, highest correlation first.
    """
    residual = outcomes["mean_reward"] - outcomes.groupby("query_id")["mean_reward"].transform(
        "mean"
    )
    table = residual.groupby([outcomes["query_id"], outcomes["policy"]]).mean().unstack()
    policies = [str(policy) for policy in table.columns]
    correlation = _pairwise_correlation(table.to_numpy(dtype=np.float64), min_common)
    first, second = np.nonzero(np.triu(correlation >= threshold, k=1))
    # Rounded, so that the order does not hang on the last bits of a sum.
    values = np.round(correlation[first, second], 6)
    return [
        (policies[first[i]], policies[second[i]], float(values[i]))
        for i in np.argsort(-values, kind="stable")
    ]


def families(
    outcomes: pd.DataFrame, policies: Sequence[str], given: Mapping[str, str | None]
) -> FamilyAssignment:
    """Family of every policy of a pool.

    Args:
        outcomes: columns `query_id`, `policy`, `mean_reward`.
        policies: the pool's policies.
        given: families the source states; these stand before the table and the name rule.

    Returns:
        The families after joining those of correlated policies. Joined families take the name of
        the one with most policies (of equals, the alphabetically first).
    """
    named = assign_families(policies)
    named.update({policy: family for policy, family in given.items() if family})
    merged = correlated_policies(outcomes)
    final = _join({policy: named[policy] for policy in policies}, merged)
    return FamilyAssignment(families=final, merged=merged)


def _model_part(name: str) -> str:
    """The model in "organisation/model@host:tag"; of "model-7b/run" the part that has a size."""
    parts = [part for part in re.split(r"[@:]", name)[0].split("/") if part] or [name]
    sized = [part for part in parts if any(_SIZE.fullmatch(w) for w in re.split(r"[-_ ]", part))]
    return (sized or parts)[-1]


def _is_detail(word: str) -> bool:
    """Whether a word of a name says which release of a model this is, not which model."""
    return any(pattern.fullmatch(word) for pattern in _DETAILS)


@cache
def _overrides() -> tuple[dict[str, str], dict[str, str]]:
    """The committed table: whole policy names, and names as the rule leaves them."""
    text = resources.files("v0_bench.pool").joinpath("family_overrides.toml").read_text("utf-8")
    table = tomllib.loads(text)
    return table["policies"], table["lineages"]


def _pairwise_correlation(values: np.ndarray, min_common: int) -> np.ndarray:
    """Pearson correlation of every two columns over the rows where neither is NaN.

    NaN where fewer than `min_common` rows are left or a column does not vary on them.
    """
    known = ~np.isnan(values)
    x, mask = np.where(known, values, 0.0), known.astype(np.float64)
    count = mask.T @ mask
    total = x.T @ mask
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = x.T @ x / count - total * total.T / count**2
        variance = (x * x).T @ mask / count - (total / count) ** 2
        # Residuals that should be equal differ by rounding; that is not variation.
        variance[variance < 1e-12] = np.nan
        correlation = covariance / np.sqrt(variance * variance.T)
    correlation[count < min_common] = np.nan
    return correlation


def _join(named: dict[str, str], pairs: Sequence[tuple[str, str, float]]) -> dict[str, str]:
    """Families after the two of every pair became one, transitively."""
    group = {family: family for family in named.values()}
    for first, second, _ in pairs:
        kept, dropped = group[named[first]], group[named[second]]
        group = {family: kept if head == dropped else head for family, head in group.items()}
    counts = pd.Series(named).value_counts()
    best: dict[str, str] = {}
    for family in sorted(group, key=lambda name: (-counts[name], name)):
        best.setdefault(group[family], family)
    return {policy: best[group[family]] for policy, family in named.items()}

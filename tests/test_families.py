"""Families: the name rule, the table of lineages, and the merge of correlated policies."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v0_bench.pool.families import (
    assign_families,
    correlated_policies,
    families,
    family_of,
)


@pytest.mark.parametrize(
    ("policy", "family"),
    [
        ("acme/Foo2-7B-Instruct-2024-05-13@hostname", "foo-2"),
        ("Meta-Llama-3_1-70B-Instruct", "llama-3.1"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1"),
        ("Llama-3.1-405B-Inst-fp8", "llama-3.1"),
        ("llama3:8b-q4_K_M", "llama-3"),
        ("Qwen_Qwen3-30B-A3B-GGUF-Q4_K_M", "qwen-qwen-3"),
        ("mistralai/Mistral-7B-v0.1", "mistral"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral"),
        ("gpt-4-0613", "gpt-4"),
        ("gpt-4-turbo-2024-04-09", "gpt-4"),
        ("GPT-4O-mini-2024-07-18", "gpt-4o"),
        ("claude-3-5-sonnet-20241022", "claude-3.5"),
        ("Claude-3.7-Sonnet (Thinking)", "claude-3.7"),
        ("gemini-2.5-pro-preview-03-25", "gemini-2.5"),
        ("Google-Gemini-Pro-1.5 (n=1)", "gemini-1.5"),
        ("o3-mini-2025-01-31 (High)", "o3"),
        ("deepseek-v2-chat-0628", "deepseek-v2"),
        ("Phi-3-mini-4k-instruct", "phi-3"),
        ("Foo2-1.5B/GRPO-run", "foo-2"),
        ("7B-Instruct", "7b-instruct"),
        ("A", "a"),
    ],
)
def test_family_of(policy, family):
    assert family_of(policy) == family


@given(st.text(max_size=30))
def test_family_of_any_name(policy):
    assert family_of(policy) == family_of(policy).lower()
    assert bool(family_of(policy)) == bool(policy)


@pytest.mark.parametrize(
    "lineage",
    [
        ["HuggingFaceH4/zephyr-7b-beta", "mistralai/Mistral-7B-v0.1", "mathstral-7B"],
        ["Gemini-Pro", "Google-Gemini-Pro"],
        ["gpt-4-0314", "GPT-4-0613", "gpt-4-1106-preview", "GPT-4-Turbo-1106"],
        ["chatgpt-4o-latest-24-09-07", "gpt-4o-mini-2024-07-18"],
        ["DeepSeek-R1-Distill-Qwen-1.5B", "Qwen2.5-Math-1.5B/GRPO-DSR-sub"],
        ["Cllama-7b-Ins", "CodeLlama-7b-Base", "WCoder-34B-V1", "llama-2-70b-chat"],
        ["DSCoder-33b-Ins", "OC-DS-33B", "WCoder-33B-V1.1", "MagiCoderS-DS-6.7B"],
        ["Smaug-2-72B", "Qwen-1.5-72B-Chat", "CodeQwen15"],
        ["llama3-chatqa-1.5-8b", "llama-3.3-nemotron-super-49b-v1", "Athene-70B"],
        ["claude-v1", "claude-instant-v1", "Claude-Instant-1"],
    ],
)
def test_known_lineages(lineage):
    assert len(set(assign_families(lineage).values())) == 1


def test_different_lineages_stay_apart():
    names = ["Mistral-7B-v0.1", "Mistral-Large", "Mixtral-8x7B-v0.1", "gemma-7b", "gemma-2-9b-it"]
    names += ["gpt-4-0613", "gpt-4o-2024-05-13", "Claude-2", "Claude-3-Opus", "Yi-34B", "yi-large"]
    assert len(set(assign_families(names).values())) == len(names)


def slow_correlations(outcomes, min_common):
    """Residual correlations of every pair, query by query."""
    mean = outcomes.groupby("query_id")["mean_reward"].mean()
    residual: dict[str, dict[str, list[float]]] = {}
    for row in outcomes.itertuples():
        cell = residual.setdefault(row.policy, {}).setdefault(row.query_id, [])
        cell.append(row.mean_reward - mean[row.query_id])
    found = {}
    names = sorted(residual)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            common = sorted(set(residual[first]) & set(residual[second]))
            x = [np.mean(residual[first][q]) for q in common]
            y = [np.mean(residual[second][q]) for q in common]
            if len(common) >= min_common and np.std(x) > 1e-6 and np.std(y) > 1e-6:
                found[first, second] = np.corrcoef(x, y)[0, 1]
    return found


def random_outcomes(rng, n_queries=80, n_policies=7, steps=(None,), kept=0.8):
    difficulty = rng.normal(size=n_queries)
    shared_skill = rng.normal(size=n_queries)
    rows = []
    for p in range(n_policies):
        for step in steps:
            logit = difficulty + (2 * shared_skill if p < 3 else rng.normal(size=n_queries))
            rewards = rng.binomial(4, 1 / (1 + np.exp(-logit))) / 4
            keep = rng.random(n_queries) < kept
            rows += [
                {"query_id": f"q{i}", "policy": f"p{p}", "step": step, "mean_reward": rewards[i]}
                for i in np.flatnonzero(keep)
            ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0, ignore_index=True)


@pytest.mark.parametrize("steps", [(None,), (0, 10, 20)])
@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_the_slow_computation(seed, steps):
    outcomes = random_outcomes(np.random.default_rng(seed), steps=steps)
    slow = slow_correlations(outcomes, 50)
    for threshold in (-0.2, 0.2, 0.5):
        found = {(a, b): c for a, b, c in correlated_policies(outcomes, threshold)}
        expected = {pair: c for pair, c in slow.items() if c >= threshold}
        assert found == pytest.approx(expected, abs=1e-6)
        assert list(found.values()) == sorted(found.values(), reverse=True)


def by_policy(**rewards):
    """Outcomes from one list of rewards per policy; None is a query it did not try."""
    rows = [
        (f"q{i}", policy, reward)
        for policy, values in rewards.items()
        for i, reward in enumerate(values)
        if reward is not None
    ]
    return pd.DataFrame(rows, columns=["query_id", "policy", "mean_reward"])


def test_too_few_common_queries_or_no_variation_merge_nothing():
    rng = np.random.default_rng(1)
    a, b = rng.random(49).tolist(), rng.random(49).tolist()
    assert correlated_policies(by_policy(x=a, y=a, z=b)) == []
    a, b = rng.random(50).tolist(), rng.random(50).tolist()
    assert correlated_policies(by_policy(x=a, y=a, z=b)) == [("x", "y", 1.0)]
    # Alone in the pool, copies leave no residual at all.
    assert correlated_policies(by_policy(x=a, y=a)) == []


def test_two_policies_alone_are_never_merged():
    rng = np.random.default_rng(2)
    base = rng.random(200)
    near = np.clip(base + rng.normal(0, 0.01, 200), 0, 1)
    assert correlated_policies(by_policy(x=base.tolist(), y=near.tolist()), -0.9) == []


def test_families_merge_transitively_and_take_the_largest_name():
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(0, 2, (3, 400)).astype(float)
    half = np.where(np.arange(400) < 200, a, b)
    outcomes = by_policy(**{"Foo-1B": a, "Foo-7B": half, "Bar-1B": a, "Baz-2B": b, "Qux": c})
    names = ["Foo-1B", "Foo-7B", "Bar-1B", "Baz-2B", "Qux"]
    found = families(outcomes, names, dict.fromkeys(names))
    assert found.merged[0] == ("Bar-1B", "Foo-1B", 1.0)
    assert found.families["Bar-1B"] == found.families["Foo-7B"] == "foo"
    assert found.families["Qux"] == "qux"
    for first, second, _ in found.merged:
        assert found.families[first] == found.families[second]


def test_given_families_stand_before_the_rule_and_are_merged_too():
    rng = np.random.default_rng(4)
    a, b, c = rng.integers(0, 2, (3, 100)).astype(float)
    outcomes = by_policy(**{"gpt-4-0613": a, "gpt-4-0314": b, "mine": c, "copy": c})
    names = ["gpt-4-0613", "gpt-4-0314", "mine", "copy"]
    found = families(outcomes, names, {"gpt-4-0613": "house", "mine": "one", "copy": "two"})
    assert found.families == {
        "gpt-4-0613": "house",
        "gpt-4-0314": "gpt-4",
        "mine": "one",
        "copy": "one",
    }
    # What a pool stores is given back unchanged.
    assert families(outcomes, names, found.families).families == found.families


def real_outcomes(shared, name):
    folder = shared / "pools" / name
    text = pd.read_json(folder / "queries.jsonl", lines=True, dtype={"query_id": str})
    outcomes = pd.read_json(folder / "outcomes.jsonl.gz", lines=True, dtype={"query_id": str})
    return outcomes[outcomes["query_id"].isin(text.loc[text["text"].notna(), "query_id"])]


@pytest.mark.parametrize(
    ("name", "n_families", "n_pairs", "same"),
    [
        ("livecodebench", 17, 63, ("Gemini-Pro", "Google-Gemini-Pro")),
        (
            "zeroeval",
            20,
            4,
            ("Llama-3.1-405B-Instruct-Turbo", "Meta-Llama-3.1-405B-Instruct@hyperbolic"),
        ),
        ("routerdc7", 2, 0, ("HuggingFaceH4/zephyr-7b-beta", "mistralai/Mistral-7B-v0.1")),
        ("mmlu_pro", 12, 0, ("Yi-34B", "Yi-6b-Chat")),
        ("llmrouter9", 5, 0, ("llama-3.1-8b-instruct", "llama3-chatqa-1.5-70b")),
        ("routerbench_part", 7, 1, ("claude-v1", "meta/llama-2-70b-chat")),
        ("oneshot_rlvr", 1, 0, ("Qwen2.5-Math-1.5B/GRPO-DSR-sub",) * 2),
    ],
)
def test_real_pools(shared, name, n_families, n_pairs, same):
    outcomes = real_outcomes(shared, name)
    policies = sorted(outcomes["policy"].unique())
    start = time.perf_counter()
    found = families(outcomes, policies, {})
    assert time.perf_counter() - start < 2
    assert set(found.families) == set(policies)
    assert (len(set(found.families.values())), len(found.merged)) == (n_families, n_pairs)
    assert found.families[same[0]] == found.families[same[1]]


def test_one_model_under_two_names_is_found_by_its_outcomes(shared):
    pairs = {
        (a, b) for a, b, c in correlated_policies(real_outcomes(shared, "livecodebench"), 0.99)
    }
    assert ("Gemini-Pro", "Google-Gemini-Pro") in pairs
    assert ("CodeQwen15", "CodeQwen15-7B") in pairs

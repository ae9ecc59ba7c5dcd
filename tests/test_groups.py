"""Query groups against a quadratic reference, by hand, and on real texts."""

import json
import re
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v0_bench.errors import V0BenchError
from v0_bench.pool import groups
from v0_bench.pool.groups import query_groups

SENTENCE = "a small boat with seven red lanterns crosses the quiet lake before the first snow falls"


def frame(texts, datasets=None, group=None, ids=None):
    n = len(texts)
    return pd.DataFrame(
        {
            "query_id": ids or [f"q{i:05d}" for i in range(n)],
            "dataset": datasets or ["d"] * n,
            "text": texts,
            "group": group or [None] * n,
        }
    )


def reference_groups(queries):
    """The definition, pair by pair."""
    rows = queries.to_dict("records")
    shingles = []
    for row in rows:
        words = re.findall(r"\w+", row["text"].lower())
        shingles.append({tuple(words[i : i + 5]) for i in range(len(words) - 4)})
    kept = []
    for row, mine in zip(rows, shingles, strict=True):
        peers = [s for r, s in zip(rows, shingles, strict=True) if r["dataset"] == row["dataset"]]
        found = {s: sum(s in peer for peer in peers) for s in mine}
        kept.append({s for s in mine if not (found[s] > 2 and 10 * found[s] > len(peers))})
    parent = list(range(len(rows)))

    def root(i):
        while parent[i] != i:
            i = parent[i]
        return i

    for i, j in combinations(range(len(rows)), 2):
        a, b = rows[i], rows[j]
        equal = re.sub(r"\W", "", a["text"].lower()) == re.sub(r"\W", "", b["text"].lower())
        union = len(kept[i] | kept[j])
        close = union > 0 and 5 * len(kept[i] & kept[j]) >= 4 * union
        if equal or close or (a["group"] is not None and a["group"] == b["group"]):
            parent[root(i)] = root(j)
    names = {}
    for i, row in enumerate(rows):
        names[root(i)] = min(names.get(root(i), row["query_id"]), row["query_id"])
    return [names[root(i)] for i in range(len(rows))]


def random_queries(rng, n):
    """Texts made by editing a few others, with shared openings, in two data sets."""
    vocabulary = np.array([f"w{i}" for i in range(12)])
    openings = [list(rng.choice(vocabulary, 8)) for _ in range(2)]
    texts = []
    for _ in range(n):
        if texts and rng.random() < 0.6:
            words = list(texts[rng.integers(len(texts))])
            for _ in range(rng.integers(0, 3)):
                words[rng.integers(len(words))] = str(rng.choice(vocabulary))
        else:
            opening = openings[rng.integers(2)] if rng.random() < 0.5 else []
            words = opening + list(rng.choice(vocabulary, rng.integers(1, 30)))
        texts.append(words)
    marks = [" ", ", ", "  ", " - "]
    joined = [marks[rng.integers(4)].join(words) for words in texts]
    given_group = [None if rng.random() < 0.95 else f"g{rng.integers(3)}" for _ in range(n)]
    ids = [f"id{i}" for i in rng.permutation(n)]
    return frame(joined, list(rng.choice(["a", "b"], n)), given_group, ids)


@pytest.mark.parametrize("block", [1, 50, 4_000_000])
@pytest.mark.parametrize("seed", range(12))
def test_equals_the_quadratic_computation(seed, block, monkeypatch):
    monkeypatch.setattr(groups, "OVERLAPS_PER_BLOCK", block)
    monkeypatch.setattr(groups, "SHINGLES_PER_CHUNK", block)
    monkeypatch.setattr(groups, "LARGEST_COUNT", 10**6)
    queries = random_queries(np.random.default_rng(seed), 120)
    expected = reference_groups(queries)
    assert list(query_groups(queries)) == expected
    assert 10 < len(set(expected)) < 115


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["u", "v", "w", "!"]), max_size=9).map(" ".join),
            st.sampled_from(["a", "b"]),
            st.sampled_from([None, None, None, "g"]),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_equals_the_quadratic_computation_on_short_texts(rows):
    texts, datasets, given_group = (list(column) for column in zip(*rows, strict=True))
    # Texts without any word are compared as they stand, which the reference does not do.
    texts = [text if re.search(r"\w", text) else text + "word" for text in texts]
    queries = frame(texts, datasets, given_group)
    assert list(query_groups(queries)) == reference_groups(queries)


def test_case_and_punctuation_do_not_part_texts():
    texts = ["How many, then?", "how many THEN", "How many now?"]
    assert list(query_groups(frame(texts))) == ["q00000", "q00000", "q00002"]


def test_texts_without_words_are_not_all_one_group():
    assert len(set(query_groups(frame(["+ + +", "- -", "+ + +"])))) == 2


@pytest.mark.parametrize(("extra", "together"), [(2, True), (3, False)])
def test_threshold_is_eight_tenths(extra, together):
    # 12 words have 8 shingles; `extra` more words give 8 + extra, 8 of them shared.
    words = [f"n{i}" for i in range(12)]
    longer = words + [f"m{i}" for i in range(extra)]
    found = query_groups(frame([" ".join(words), " ".join(longer)]))
    assert (found[0] == found[1]) is together


def test_group_is_named_by_its_smallest_id_whatever_the_order():
    queries = frame([SENTENCE, "another one", SENTENCE.upper()], ids=["z", "m", "b"])
    assert list(query_groups(queries)) == ["b", "m", "b"]
    assert list(query_groups(queries.iloc[::-1])) == ["b", "m", "b"]


def test_given_group_joins_and_null_does_not():
    queries = frame(["one", "two", "three", "four"], group=["p", None, "p", None])
    assert list(query_groups(queries)) == ["q00000", "q00001", "q00000", "q00003"]


def test_relation_is_closed():
    queries = frame([SENTENCE, SENTENCE + "!", "other words"], group=[None, "p", "p"])
    assert len(set(query_groups(queries))) == 1


def test_shared_instructions_do_not_join_texts():
    texts = [f"{SENTENCE} item{i} is what number{i} asks of you{i}" for i in range(60)]
    assert len(set(query_groups(frame(texts)))) == 60


def test_shingles_are_common_within_a_data_set():
    # The sentence opens 3 of 30 texts of one data set: not over 10 %, so it counts there.
    fillers = [" ".join(f"f{i}x{j}" for j in range(8)) for i in range(27)]
    texts = [f"{SENTENCE} {ending}" for ending in ("north", "south", "west")] + fillers
    assert len(set(query_groups(frame(texts)))) == 28
    assert len(set(query_groups(frame(texts[:-1])))) == 29


def test_a_pair_of_copies_in_a_tiny_pool_is_no_error():
    assert len(set(query_groups(frame([SENTENCE] * 2 + ["other"])))) == 2


def test_a_giant_group_is_refused_with_examples():
    # Copies in a data set of their own would count as common, equality still joins them.
    texts = [SENTENCE] * 11 + [f"text number{i}" for i in range(100)]
    with pytest.raises(V0BenchError, match="11 of 111 queries") as error:
        query_groups(frame(texts))
    assert "q00000: a small boat" in str(error.value)
    assert SENTENCE not in str(error.value)
    assert len(set(query_groups(frame(texts[1:])))) == 101


def test_a_large_given_group_is_no_error_unless_texts_widen_it():
    texts = [f"form {i}" for i in range(40)]
    group = ["g"] * 20 + [None] * 20
    assert len(set(query_groups(frame(texts, group=group)))) == 21
    texts[20] = "Form 0."
    with pytest.raises(V0BenchError, match="21 of 40 queries"):
        query_groups(frame(texts, group=group))


def test_no_queries():
    assert len(query_groups(frame([]))) == 0


def test_many_variants_of_one_template_take_bounded_time():
    rng = np.random.default_rng(0)
    stems = [" ".join(f"s{s}w{j}" for j in range(40)) for s in range(20)]
    texts = [
        f"{stems[i % 20]} {' '.join(f'n{k}' for k in rng.integers(10**6, size=6))}"
        for i in range(8000)
    ]
    start = time.perf_counter()
    assert len(set(query_groups(frame(texts)))) > 19
    assert time.perf_counter() - start < 10


def real_texts(folder: Path) -> pd.DataFrame:
    if folder.is_file() or (folder / "queries.jsonl").is_file():
        path = folder if folder.is_file() else folder / "queries.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        rows = [row for row in rows if row["text"] is not None]
        return frame(
            [r["text"] for r in rows],
            [r.get("dataset", "d") for r in rows],
            ids=[r["query_id"] for r in rows],
        )
    prompts = json.loads((folder / "prompt_dict.json").read_text(encoding="utf-8"))
    return frame(list(prompts.values()), [k.rsplit("_", 1)[0] for k in prompts], ids=list(prompts))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pools/livecodebench", (880, 1)),
        ("pools/llmrouter9", (5521, 2)),
        ("pools/mmlu_pro", (11847, 2)),
        ("pools/oneshot_rlvr", (1206, 3)),
        ("pools/routerbench_part", (3162, 2)),
        ("pools/routerdc7", (3966, 2)),
        ("pools/v0_release", (2861, 2)),
        ("pools/zeroeval", (2840, 1)),
        ("problem_sets/dapo_math_17k.jsonl", (15977, 6)),
    ],
)
def test_real_texts(shared, name, expected):
    queries = real_texts(shared / name)
    start = time.perf_counter()
    sizes = pd.Series(query_groups(queries)).value_counts()
    assert time.perf_counter() - start < 10
    assert (len(sizes), int(sizes.max())) == expected


def test_real_texts_equal_the_quadratic_computation(shared):
    queries = real_texts(shared / "problem_sets" / "olympiad_bench.jsonl").iloc[400:600]
    assert len(set(query_groups(queries))) < len(queries)
    assert list(query_groups(queries)) == reference_groups(queries)

"""Query groups: which queries of a pool are near-duplicates of one another.

Two queries belong together when their texts are equal after lower-casing and dropping non-word
characters, when the sets of their 5-word shingles have a Jaccard similarity of at least 0.8, or
when they share a value of `group`. Groups are the connected components of that relation. The
similarity join is exact: sets that reach the threshold must share one of their rarest shingles
(prefix filter; Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007), so only pairs
that do are compared in full.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from v0_bench.errors import V0BenchError

IntArray = npt.NDArray[np.int64]

SHINGLE_WORDS = 5
# Jaccard >= 4/5, kept as a fraction so that the comparison is exact.
NUMERATOR, DENOMINATOR = 4, 5
# Common: found in over a tenth of a data set, and in more than two of its queries.
COMMON_PARTS, COMMON_COUNT = 10, 2
LARGEST_SHARE, LARGEST_COUNT = 0.02, 10
# Bounds on what one step of the join holds: shared shingles counted, shingles gathered.
OVERLAPS_PER_BLOCK = 4_000_000
SHINGLES_PER_CHUNK = 4_000_000

_WORD = re.compile(r"\w+")


def query_groups(queries: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Group of every query, named by the smallest `query_id` in it.

    Args:
        queries: columns `query_id` (unique), `dataset`, `text` (no nulls) and `group` (may be
            null).

    Returns:
        Array of str, shape (n_queries,), in the order of the rows.

    Raises:
        V0BenchError: a group that texts join holds over 2 % of the queries (and more than 10):
            splitting such a pool by group would mean little.
    """
    ids = queries["query_id"].to_numpy(dtype=object)
    if len(ids) == 0:
        return ids
    words = [_WORD.findall(text.lower()) for text in queries["text"]]
    keys = ["".join(w) or text for w, text in zip(words, queries["text"], strict=True)]
    datasets = pd.factorize(queries["dataset"])[0]
    given = pd.factorize(queries["group"])[0]
    labels = _components(
        pd.factorize(np.asarray(keys, dtype=object))[0],
        near_duplicates(shingle_sets(words, datasets)),
        given,
    )
    _refuse_large(queries, labels, given)
    order = np.argsort(ids, kind="stable")
    smallest = order[np.unique(labels[order], return_index=True)[1]]
    return ids[smallest[labels]]


def shingle_sets(words: Sequence[Sequence[str]], datasets: IntArray) -> sparse.csr_array:
    """Set of 5-word shingles of every text, as ones in a sparse matrix (n_texts, n_shingles).

    Shingles found in over 10 % of the texts of a data set, and in more than 2 of them, are left
    out of the texts of that data set: instructions and few-shot examples say nothing about
    whether two queries are the same. Columns run from the rarest shingle to the commonest.
    """
    lengths = np.fromiter((len(w) for w in words), dtype=np.int64, count=len(words))
    rows = np.repeat(np.arange(len(words)), lengths)
    flat = pd.factorize(np.asarray([x for w in words for x in w], dtype=object))[0]
    if len(flat) < SHINGLE_WORDS:
        return sparse.csr_array((len(words), 0), dtype=np.int32)
    inside = rows[: 1 - SHINGLE_WORDS] == rows[SHINGLE_WORDS - 1 :]
    shingles = pd.factorize(_shingle_codes(flat)[inside])[0]
    n_shingles = int(shingles.max(initial=-1)) + 1
    pairs = pd.unique(rows[: 1 - SHINGLE_WORDS][inside] * n_shingles + shingles)
    row, shingle = np.divmod(pairs, max(n_shingles, 1))
    keep = ~_is_common(datasets[row], shingle, np.bincount(datasets), n_shingles)
    row, shingle = row[keep], shingle[keep]
    frequency = np.bincount(shingle, minlength=n_shingles)
    rank = np.empty(n_shingles, dtype=np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(n_shingles)
    ones = np.ones(len(row), dtype=np.int32)
    sets = sparse.csr_array((ones, (row, rank[shingle])), shape=(len(words), n_shingles))
    sets.sort_indices()
    return sets


def near_duplicates(sets: sparse.csr_array) -> IntArray:
    """Connected components of the rows whose sets have Jaccard >= 0.8; -1 for empty sets.

    `sets`: ones in a sparse matrix with sorted indices, columns from the rarest to the commonest.
    """
    member, first = _distinct_rows(sets)
    if len(first) == 0:
        return member
    distinct = sets[first]
    sizes = np.diff(distinct.indptr)
    labels = np.arange(len(first))
    for left, right in _candidates(distinct, sizes):
        small, large = np.sort([sizes[left], sizes[right]], axis=0)
        worth = (DENOMINATOR * small >= NUMERATOR * large) & (labels[left] != labels[right])
        left, right = _similar(distinct, sizes, left[worth], right[worth])
        labels = _join(labels, left, right)
    return np.where(member >= 0, labels[member], -1)


def _shingle_codes(flat: IntArray) -> IntArray:
    """One integer for every run of five words, equal exactly when the five words are."""
    pairs = _pair_codes(flat[:-1], flat[1:])
    fours = _pair_codes(pairs[:-2], pairs[2:])
    return _pair_codes(fours[:-1], flat[SHINGLE_WORDS - 1 :])


def _pair_codes(left: IntArray, right: IntArray) -> IntArray:
    """Dense codes of pairs of codes; the product stays below 2**63 for any text that fits."""
    return pd.factorize(left * (int(right.max()) + 1) + right)[0]


def _is_common(
    dataset: IntArray, shingle: IntArray, dataset_sizes: IntArray, n_shingles: int
) -> npt.NDArray[np.bool_]:
    """Which (data set, shingle) incidences belong to shingles common in that data set."""
    cell = pd.factorize(dataset * n_shingles + shingle)[0]
    count = np.bincount(cell, minlength=1)[cell]
    return (COMMON_PARTS * count > dataset_sizes[dataset]) & (count > COMMON_COUNT)


def _distinct_rows(sets: sparse.csr_array) -> tuple[IntArray, IntArray]:
    """Index of each row's set among the distinct non-empty ones (-1: empty), and their rows."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    member = np.full(sets.shape[0], -1, dtype=np.int64)
    for row, (start, stop) in enumerate(zip(sets.indptr[:-1], sets.indptr[1:], strict=True)):
        if start == stop:
            continue
        key = sets.indices[start:stop].tobytes()
        if key not in seen:
            seen[key] = len(first)
            first.append(row)
        member[row] = seen[key]
    return member, np.asarray(first, dtype=np.int64)


def _candidates(sets: sparse.csr_array, sizes: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Pairs i < j that share one of their size // 5 + 1 rarest shingles, in blocks of rows.

    Jaccard >= 4/5 means at least ceil(4 n / 5) of a set's n shingles are shared, so of any
    n - ceil(4 n / 5) + 1 = n // 5 + 1 shingles one is; taking the first in one common order on
    both sides, the first shared shingle stands in both prefixes.
    """
    position = np.arange(sets.nnz) - np.repeat(sets.indptr[:-1], sizes)
    row = np.repeat(np.arange(len(sizes)), sizes)
    chosen = position < np.repeat(sizes // DENOMINATOR + 1, sizes)
    row, column = row[chosen], sets.indices[chosen]
    frequency = np.bincount(column, minlength=sets.shape[1])
    shared = frequency[column] > 1
    row, column = row[shared], column[shared]
    ones = np.ones(len(row), dtype=np.int32)
    prefixes = sparse.csr_array((ones, (row, column)), shape=sets.shape)
    transposed = prefixes.T.tocsr()
    work = np.cumsum(np.bincount(row, weights=frequency[column], minlength=len(sizes)))
    start = 0
    while start < len(sizes):
        done = work[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(work, done + OVERLAPS_PER_BLOCK, "right")))
        overlap = (prefixes[start:stop] @ transposed).tocoo()
        left, right = overlap.row.astype(np.int64) + start, overlap.col.astype(np.int64)
        yield left[left < right], right[left < right]
        start = stop


def _similar(
    sets: sparse.csr_array, sizes: IntArray, left: IntArray, right: IntArray
) -> tuple[IntArray, IntArray]:
    """Those of the given pairs of rows that reach the threshold."""
    passed = np.zeros(len(left), dtype=bool)
    chunk = np.cumsum(sizes[left] + sizes[right]) // SHINGLES_PER_CHUNK
    for part in np.split(np.arange(len(left)), np.flatnonzero(np.diff(chunk)) + 1):
        i, j = left[part], right[part]
        both = np.asarray(sets[i].multiply(sets[j]).sum(axis=1)).ravel()
        either = sizes[i] + sizes[j] - both
        passed[part] = DENOMINATOR * both >= NUMERATOR * either
    return left[passed], right[passed]


def _join(labels: IntArray, left: IntArray, right: IntArray) -> IntArray:
    """The labels after the components of each pair (left, right) became one."""
    size = len(labels)
    graph = sparse.coo_array(
        (np.ones(len(left), dtype=np.int8), (labels[left], labels[right])), shape=(size, size)
    )
    components: IntArray = connected_components(graph, directed=False)[1]
    return components[labels]


def _components(*partitions: IntArray) -> IntArray:
    """Components of items that share a label in any of the partitions (-1 shares with nobody)."""
    labels = np.arange(len(partitions[0]))
    for partition in partitions:
        linked = np.flatnonzero(partition >= 0)
        _, first, inverse = np.unique(partition[linked], return_index=True, return_inverse=True)
        labels = _join(labels, linked, linked[first[inverse]])
    return np.unique(labels, return_inverse=True)[1]


def _refuse_large(queries: pd.DataFrame, labels: IntArray, given: IntArray) -> None:
    """Raise for the largest group that is too large and is not one value of `group` alone."""
    sizes = np.bincount(labels)
    limit = max(LARGEST_SHARE * len(labels), LARGEST_COUNT)
    for label in np.argsort(-sizes, kind="stable"):
        if sizes[label] <= limit:
            return
        members = np.flatnonzero(labels == label)
        if given[members[0]] >= 0 and len(set(given[members])) == 1:
            continue
        examples = "\n".join(
            f"  {queries['query_id'].iloc[m]}: {' '.join(queries['text'].iloc[m].split())[:60]}"
            for m in members[:4]
        )
        raise V0BenchError(
            f"{sizes[label]} of {len(labels)} queries are near-duplicates of one another, more "
            f"than the {LARGEST_SHARE:.0%} that may form one group. Drop the copies, or put what "
            f"sets the queries apart into their text. Examples:\n{examples}"
        )

"""From a frame of predictions to checked arrays: the only file of the kernels that reads frames.

Identifiers become integer codes once, over all seeds, so that one resample of query groups or of
families means the same thing in every seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from v0_bench.errors import V0BenchError

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KEY_COLUMNS = ("seed", "policy", "step", "query_id")
PREDICTION_COLUMNS = (
    "pool",
    "protocol",
    "seed",
    "predictor",
    "policy",
    "step",
    "query_id",
    "query_group",
    "dataset",
    "family",
    "prediction",
    "mean_reward",
    "n_rollouts",
    "context_size",
    "context_mean",
    "query_difficulty",
)


class MetricInputError(V0BenchError, ValueError):
    """The rows given to a metric are not what it is defined on."""


@dataclass(frozen=True)
class Rows:
    """Test rows of one seed; every array has shape (n,). Codes are dense over all seeds.

    `difficulty` is NaN where unknown; `context_mean` is .5 for an empty context.
    """

    checkpoint: Ints
    policy: Ints
    family: Ints
    query: Ints
    group: Ints
    dataset: Ints
    prediction: Floats
    reward: Floats
    rollouts: Floats
    context_mean: Floats
    difficulty: Floats

    def __len__(self) -> int:
        return len(self.prediction)

    @property
    def label(self) -> npt.NDArray[np.bool_]:
        """y = [r >= 0.5]."""
        return self.reward >= 0.5

    def with_prediction(self, prediction: Floats) -> Rows:
        """The same rows under other predictions."""
        return replace(self, prediction=prediction)

    def with_outcomes(self, prediction: Floats, reward: Floats) -> Rows:
        """The same rows under other predictions and other success rates."""
        return replace(self, prediction=prediction, reward=reward)

    def take(self, index: npt.NDArray[np.bool_] | Ints) -> Rows:
        """The chosen rows, with the codes unchanged."""
        return Rows(**{name: getattr(self, name)[index] for name in self.__dataclass_fields__})


def rows_by_seed(frame: pd.DataFrame) -> dict[int, Rows]:
    """Check a frame and split it: seed -> Rows, seeds ascending."""
    check_frame(frame)
    seeds = numbers(frame, "seed").astype(np.int64)
    rows = _rows(frame)
    _check_keys(rows, seeds)
    distinct = np.unique(seeds)
    if len(distinct) == 1:
        return {int(distinct[0]): rows}
    return {int(seed): rows.take(seeds == seed) for seed in distinct}


def check_frame(frame: pd.DataFrame) -> None:
    """Raise MetricInputError unless the frame holds rows of one pool, protocol and predictor."""
    missing = [name for name in PREDICTION_COLUMNS if name not in frame.columns]
    if missing:
        raise MetricInputError(f"predictions lack the columns {', '.join(missing)}")
    if not len(frame):
        raise MetricInputError("no rows to score")
    for name in ("pool", "protocol", "predictor"):
        values = frame[name].unique()
        if len(values) > 1:
            shown = ", ".join(map(str, values[:3]))
            raise MetricInputError(
                f"rows of {len(values)} values of {name} ({shown}); metrics are defined on one: "
                "filter or group the predictions first"
            )
    for name in ("policy", "query_id", "query_group", "dataset"):
        if frame[name].isna().any():
            raise MetricInputError(f"column {name} holds nulls")
    _check_range(frame, "prediction", 0.0, 1.0)
    _check_range(frame, "mean_reward", 0.0, 1.0)
    _check_range(frame, "n_rollouts", 1.0, np.inf)
    _check_range(frame, "seed", -np.inf, np.inf)


def numbers(frame: pd.DataFrame, name: str) -> Floats:
    """A column as float64, nulls as NaN."""
    try:
        return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise MetricInputError(f"column {name} holds values that are not numbers") from error


def codes(column: pd.Series) -> Ints:
    """Dense codes in the sorted order of the values (row order must not matter); -1 for null."""
    import pandas as pd

    return pd.factorize(column, sort=True)[0].astype(np.int64)


def compact(code: Ints) -> Ints:
    """Renumber non-negative codes to 0..m-1 in the same order."""
    if len(code) and code.max() < 4 * len(code):
        present = np.bincount(code) > 0
        return (np.cumsum(present) - 1)[code]
    return np.unique(code, return_inverse=True)[1].astype(np.int64)


def _rows(frame: pd.DataFrame) -> Rows:
    policy = codes(frame["policy"])
    step = codes(frame["step"]) + 1
    family = codes(frame["family"])
    family = np.where(family < 0, family.max() + 1 + policy, family)
    mean = numbers(frame, "context_mean")
    return Rows(
        checkpoint=compact(policy * (step.max() + 1) + step),
        policy=policy,
        family=compact(family),
        query=codes(frame["query_id"]),
        group=codes(frame["query_group"]),
        dataset=codes(frame["dataset"]),
        prediction=numbers(frame, "prediction"),
        reward=numbers(frame, "mean_reward"),
        rollouts=numbers(frame, "n_rollouts"),
        context_mean=np.where(np.isnan(mean), 0.5, mean),
        difficulty=numbers(frame, "query_difficulty"),
    )


def _check_range(frame: pd.DataFrame, name: str, low: float, high: float) -> None:
    values = numbers(frame, name)
    bad = ~(np.isfinite(values) & (values >= low) & (values <= high))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise MetricInputError(
            f"column {name}, row {first}: {values[first]} is not in [{low:g}, {high:g}]"
        )


def _check_keys(rows: Rows, seeds: Ints) -> None:
    key = (compact(seeds - seeds.min()) * (rows.checkpoint.max() + 1) + rows.checkpoint) * (
        rows.query.max() + 1
    ) + rows.query
    key.sort()
    if (key[1:] == key[:-1]).any():
        raise MetricInputError(
            "a (seed, policy, step, query_id) occurs more than once in these rows"
        )

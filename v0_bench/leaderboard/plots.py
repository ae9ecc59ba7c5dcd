"""Plots of a leaderboard: AUC with intervals, reliability, AUC against step and context size.

Each is drawn once for every pool and protocol, and written as PNG and as SVG whose bytes depend on
the numbers alone. Colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from v0_bench.files import atomic_file
from v0_bench.metrics.auc import MIN_CLASS_ROWS
from v0_bench.metrics.calibration import BINS, equal_mass_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
INK, GREY = "#222222", "#888888"
RELIABILITY_PANELS, LINES_PER_PLOT = 6, 8
WIDTH = 6.5  # inches: the text width of a page
STYLE: dict[Any, Any] = {  # matplotlib lists the keys it takes in a type of its own
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "svg.hashsalt": "v0-bench",
    "text.parse_math": False,  # a dollar sign in a name starts no formula
    "figure.constrained_layout.hspace": 0.06,
}


def write_plots(
    folder: Path, document: Mapping[str, Any], predictions: pd.DataFrame, curve: pd.DataFrame
) -> list[Path]:
    """Writes the plots of every pool and protocol into a folder and returns their paths.

    Parameters
    ----------
    document: the leaderboard (`leaderboard.json`).
    predictions: the columns of `predictions.parquet`; without reference rows.
    curve: columns pool, protocol, predictor, context_size and auc; may be empty.

    A table without predictions has no plots; `auc_by_step` needs two steps,
    `auc_by_context_size` two sizes. Raises V0BenchError where the folder cannot be written.
    """
    from matplotlib import rc_context

    paths = []
    with rc_context(STYLE):
        tables = predictions.groupby(["pool", "protocol"], sort=False) if len(predictions) else ()
        for (pool, protocol), frame in tables:
            rows = [r for r in document["rows"] if (r["pool"], r["protocol"]) == (pool, protocol)]
            mine = curve
            if len(curve):
                mine = curve[(curve["pool"] == pool) & (curve["protocol"] == protocol)]
            for name, figure in _figures(rows, frame, mine):
                paths += _save(figure, folder, f"{pool}-{protocol}-{name}")
    return paths


def _figures(
    rows: Sequence[Row], frame: pd.DataFrame, curve: pd.DataFrame
) -> Iterator[tuple[str, Figure]]:
    shown = sorted(filter(_has_auc, rows), key=lambda row: -row["auc"]["value"])
    best = [row["predictor"] for row in shown if row["rank"] is not None]
    if not shown:
        return
    yield "auc", _auc_figure(rows, shown, frame)
    if not best:
        return
    yield "reliability", _reliability_figure(rows, best[:RELIABILITY_PANELS], frame)
    best = best[:LINES_PER_PLOT]
    by_step = auc_by_step(frame[frame["predictor"].isin(best)])
    if by_step.shape[1] > 1:
        yield "auc_by_step", _lines_figure(by_step.loc[best], "training step", frame)
    if len(curve):
        by_size = curve[curve["context_size"] > 0].pivot_table(
            index="predictor", columns="context_size", values="auc"
        )
        by_size = by_size.loc[[name for name in best if name in by_size.index]]
        if by_size.size and by_size.shape[1] > 1:
            first = frame[frame["seed"] == frame["seed"].min()]  # the curve's only seed
            yield "auc_by_context_size", _lines_figure(by_size, "context size (outcomes)", first)


def auc_by_step(frame: pd.DataFrame) -> pd.DataFrame:
    """AUC by predictor (rows) and step (columns), averaged over policies, then over seeds.

    As in the metric `auc`, checkpoints with fewer than 5 rows of a class are left out; the AUC is
    that of the prediction for [success rate >= 0.5], ties counted one half.
    """
    frame = frame[frame["step"].notna()]
    key = [frame[name] for name in ("predictor", "seed", "step", "policy")]
    positive = frame["mean_reward"] >= 0.5
    rank = frame["prediction"].groupby(key).rank()
    table = pd.DataFrame({"n": positive, "rank": rank.where(positive, 0.0)}).groupby(key)
    sums, rows = table.sum(), table.size()
    n, other = sums["n"], rows - sums["n"]
    auc = (sums["rank"] - n * (n + 1) / 2) / (n * other)
    auc = auc[(n >= MIN_CLASS_ROWS) & (other >= MIN_CLASS_ROWS)]
    by_seed = auc.groupby(level=["predictor", "seed", "step"]).mean()
    return by_seed.groupby(level=["predictor", "step"]).mean().unstack("step")


def _has_auc(row: Row) -> bool:
    return row["auc"] is not None and row["auc"]["value"] is not None


def _auc_figure(rows: Sequence[Row], shown: Sequence[Row], frame: pd.DataFrame) -> Figure:
    """Dots with intervals, one line a predictor, best on top; the numbers stand to the right."""
    figure, (axes,) = _figure(1.45 + 0.19 * len(shown))
    axes.axvline(0.5, color=GREY, linestyle=":", linewidth=1)
    for y, row in enumerate(shown):
        _dot(axes, y, row)
    axes.set_yticks(range(len(shown)), [row["predictor"] for row in shown])
    for label, row in zip(axes.get_yticklabels(), shown, strict=True):
        label.set_fontstyle("italic" if row["rank"] is None else "normal")
    numbers = [f"{row['auc']['value']:.3f}   {row['rank'] or '–'}" for row in shown]
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(-1, len(shown)), ["AUC     rank", *numbers])
    for side in (axes, right):
        side.tick_params(axis="y", length=0)
        side.spines[:].set_visible(False)
    axes.spines["bottom"].set_visible(True)
    axes.set_ylim(len(shown) - 0.4, -1.5)
    axes.margins(x=0.06)
    axes.grid(color="#EEEEEE", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("AUC (mean over checkpoints)")
    _legend_of_dots(figure, shown)
    _title(figure, frame, _seeds(frame), _without_value(rows))
    return figure


def _dot(axes: Axes, y: int, row: Row) -> None:
    auc, ranked = row["auc"], row["rank"] is not None
    colour = COLOURS[0] if ranked else INK
    if auc["low_policies"] is not None:
        axes.plot([auc["low_policies"], auc["high_policies"]], [y, y], color=colour, lw=0.8)
    if auc["low"] is not None:
        axes.plot([auc["low"], auc["high"]], [y, y], color=colour, lw=2.4, solid_capstyle="butt")
    marker, face = ("o", colour) if ranked else ("D", "white")
    axes.plot(auc["value"], y, marker=marker, ms=4.5, color=colour, markerfacecolor=face)


def _legend_of_dots(figure: Figure, shown: Sequence[Row]) -> None:
    from matplotlib.lines import Line2D

    intervals = [row["auc"] for row in shown if row["auc"]["low"] is not None]
    keys = [(Line2D([], [], color=GREY, linestyle=":"), "chance")]
    if intervals:
        keys.append((Line2D([], [], color=COLOURS[0], lw=2.4), "95 % interval, these policies"))
    if any(auc["low_policies"] is not None for auc in intervals):
        keys.append((Line2D([], [], color=COLOURS[0], lw=0.8), "95 % interval, new policies"))
    if any(row["rank"] is None for row in shown):
        diamond = Line2D([], [], color=INK, marker="D", ls="", ms=4.5, markerfacecolor="white")
        keys.append((diamond, "reference, not ranked"))
    handles, labels = zip(*keys, strict=True)
    figure.legend(handles, labels, loc="outside lower center", ncols=4, columnspacing=1.5)


def _reliability_figure(rows: Sequence[Row], names: Sequence[str], frame: pd.DataFrame) -> Figure:
    """A panel a predictor: mean success rate against mean prediction in equal-mass bins."""
    n_columns = 3
    n_rows = -(-len(names) // n_columns)
    figure, panels = _figure(0.6 + 2.3 * n_rows, n_rows, n_columns)
    ece = {row["predictor"]: row["ece"]["value"] for row in rows if row["ece"]}
    seed = frame["seed"].min()  # one seed: others may test the same outcomes again
    for place, (axes, name) in enumerate(zip(panels, names, strict=False)):
        _reliability_panel(axes, frame[(frame["predictor"] == name) & (frame["seed"] == seed)])
        axes.text(0.04, 0.96, f"ECE {ece[name]:.3f}", transform=axes.transAxes, va="top")
        axes.set_title(textwrap.fill(name, 27), loc="left")
        leftmost, lowest = place % n_columns == 0, place + n_columns >= len(names)
        axes.tick_params(labelleft=leftmost, labelbottom=lowest)
        axes.set_ylabel("mean success rate" if leftmost else "")
        axes.set_xlabel("mean prediction" if lowest else "")
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    remarks = (f"seed {seed}", f"{BINS} bins of equal mass", "bars: ±1.96 standard errors")
    _title(figure, frame, *remarks)
    return figure


def _reliability_panel(axes: Axes, frame: pd.DataFrame) -> None:
    prediction, reward = frame["prediction"].to_numpy(), frame["mean_reward"].to_numpy()
    table = pd.DataFrame({"p": prediction, "r": reward}).groupby(equal_mass_bins(prediction))
    mean, error = table.mean(), table["r"].sem().fillna(0.0)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, zorder=0)
    axes.errorbar(
        mean["p"],
        mean["r"],
        yerr=1.96 * error,
        color=COLOURS[0],
        marker="o",
        markersize=3,
        linewidth=0.9,
        elinewidth=0.7,
        capsize=1.5,
        capthick=0.7,
    )
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    ticks = [0, 0.5, 1]
    axes.set_xticks(ticks, ["0", ".5", "1"])
    axes.set_yticks(ticks, ["0", ".5", "1"])


def _lines_figure(table: pd.DataFrame, xlabel: str, frame: pd.DataFrame) -> Figure:
    """A line a predictor (rows of the table) over its columns, the legend in the order of ends."""
    figure, (axes,) = _figure(3.2)
    handles = {}
    for place, (name, values) in enumerate(table.iterrows()):
        known = values.dropna()
        (handles[name],) = axes.plot(
            known.index.to_numpy(dtype=float),
            known.to_numpy(),
            color=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            linestyle=LINES[place % len(LINES)],
            linewidth=1.2,
            markersize=4,
        )
    axes.axhline(0.5, color=GREY, linestyle=":", linewidth=1, zorder=0)
    _scale_x(axes, table.columns.to_numpy(dtype=float))
    axes.locator_params(axis="y", nbins=6)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(
        "AUC (mean over policies)" if "step" in xlabel else "AUC (mean over checkpoints)"
    )
    ends = table.ffill(axis=1).iloc[:, -1].sort_values(ascending=False, kind="stable").index
    labels = [textwrap.fill(name, 28) for name in ends]
    axes.legend(
        [handles[name] for name in ends],
        labels,
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        handlelength=3.2,
    )
    shown = "" if len(table) < LINES_PER_PLOT else f"the {LINES_PER_PLOT} best predictors by AUC"
    _title(figure, frame, _seeds(frame), shown)
    return figure


def _scale_x(axes: Axes, values: np.ndarray) -> None:
    """Logarithmic where the values crowd at the left of a linear axis; few values are all ticks."""
    from matplotlib.ticker import NullLocator

    if values.min() > 0 and np.median(values) < 0.35 * values.max():
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(values[:: -(-len(values) // 8)])
    elif len(values) <= 8:
        axes.set_xticks(values)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")


def _figure(height: float, n_rows: int = 1, n_columns: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    return figure, list(panels.flat)


def _title(figure: Figure, frame: pd.DataFrame, *remarks: str) -> None:
    pool, protocol = frame["pool"].iloc[0], frame["protocol"].iloc[0]
    checkpoints = len(frame[["policy", "step"]].drop_duplicates())
    queries = frame["query_id"].nunique()
    counts = (
        f"{checkpoints:,} checkpoint{'s' if checkpoints > 1 else ''}",
        f"{queries:,} test quer{'ies' if queries > 1 else 'y'}",
    )
    lines = (f"{pool}, {protocol}", "; ".join(part for part in (*counts, *remarks) if part))
    text = "\n".join(textwrap.fill(line, 95) for line in lines)
    figure.suptitle(text, x=0.01, ha="left", fontsize=8.5)


def _seeds(frame: pd.DataFrame) -> str:
    n = frame["seed"].nunique()
    return f"{n} seed{'s' if n > 1 else ''}"


def _without_value(rows: Sequence[Row]) -> str:
    missing = [
        f"{r['predictor']} ({r['status'].replace('_', ' ')})" for r in rows if not _has_auc(r)
    ]
    return f"without a value: {', '.join(missing)}" if missing else ""


def _save(figure: Figure, folder: Path, stem: str) -> list[Path]:
    """Writes PNG and SVG; characters that file systems refuse become hyphens, long names short."""
    name = re.sub(r"[^\w.+-]+", "-", stem).strip("-.").encode()[-150:].decode(errors="ignore")
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path, metadata in zip(paths, ({"Software": None}, {"Date": None}), strict=True):
        with atomic_file(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=200, metadata=metadata)
    return paths

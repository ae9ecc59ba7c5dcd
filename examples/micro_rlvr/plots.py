"""Three plots of a micro pool: success against training, by skill family, and its histogram."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from grpo import COMPLETIONS, PROMPTS

from v0_bench.micro import FAMILIES
from v0_bench.pool import Pool

# Okabe and Ito's colours, told apart by the colour-blind; line styles say the same again
STYLES = (("#0072B2", "-", "o"), ("#D55E00", "--", "s"), ("#009E73", "-.", "^"))


def plot(pool: Pool, folder: Path) -> None:
    """Write the plots as PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    held = pool.outcomes[pool.outcomes["query_id"].str.contains("-held-")]
    held = held.merge(pool.queries[["query_id", "dataset"]], on="query_id")
    held["rollouts"] = held["step"].astype(int) * PROMPTS * COMPLETIONS
    for name, draw in (
        ("success", success),
        ("families", families),
        ("histogram", histogram),
    ):
        figure = draw(held)
        figure.savefig(folder / f"{name}.png", dpi=110, bbox_inches="tight")
        plt.close(figure)


def success(held: pd.DataFrame) -> plt.Figure:
    """Mean held-out success of each policy against the rollouts it was trained on."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for (policy, rows), (colour, line, mark) in zip(held.groupby("policy"), STYLES, strict=False):
        mean = rows.groupby("rollouts")["mean_reward"].mean()
        axes.plot(mean.index, mean, line, color=colour, marker=mark, markersize=3.5, label=policy)
    axes.set(
        xlabel="rollouts trained on", ylabel="mean success on held-out queries", ylim=(0, None)
    )
    axes.set_title("GRPO makes each policy better")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def families(held: pd.DataFrame) -> plt.Figure:
    """Success by skill family (rows) and rollouts trained on (columns), a panel a policy."""
    policies = sorted(held["policy"].unique())
    figure, panels = plt.subplots(
        1, len(policies), figsize=(4 * len(policies) + 1, 5.5), sharey=True, squeeze=False
    )
    for axes, policy in zip(panels[0], policies, strict=True):
        table = held[held["policy"] == policy].pivot_table(
            index="dataset", columns="rollouts", values="mean_reward"
        )
        table = table.reindex([name for name in FAMILIES if name in table.index])
        image = axes.imshow(table, aspect="auto", vmin=0, vmax=1, cmap="cividis")
        ticks = np.linspace(0, table.shape[1] - 1, min(5, table.shape[1])).astype(int)
        axes.set_xticks(ticks, [f"{table.columns[tick] / 1000:.0f}k" for tick in ticks])
        axes.set_yticks(range(len(table)), table.index)
        axes.set(title=policy, xlabel="rollouts trained on")
    figure.colorbar(image, ax=panels[0].tolist(), label="mean success", fraction=0.03, pad=0.02)
    return figure


def histogram(held: pd.DataFrame) -> plt.Figure:
    """How often each success rate occurs, at the first, middle and last checkpoint."""
    policies, steps = sorted(held["policy"].unique()), np.sort(held["rollouts"].unique())
    shown = steps[[0, len(steps) // 2, -1]]
    figure, panels = plt.subplots(
        1, len(policies), figsize=(3.6 * len(policies), 3.2), sharey=True, squeeze=False
    )
    rates = np.arange(11)
    for axes, policy in zip(panels[0], policies, strict=True):
        rows = held[held["policy"] == policy]
        for at, (step, (colour, _, _)) in enumerate(zip(shown, STYLES, strict=True)):
            values = (rows.loc[rows["rollouts"] == step, "mean_reward"] * 10).round().astype(int)
            share = np.bincount(values, minlength=11) / max(len(values), 1)
            label = f"after {step / 1000:.1f}k rollouts"
            axes.bar(rates / 10 + (at - 1) * 0.027, share, 0.027, color=colour, label=label)
        axes.set(title=policy, xlabel="success rate of 10 rollouts")
        axes.grid(axis="y", alpha=0.3)
    panels[0][0].set_ylabel("share of held-out queries")
    panels[0][-1].legend(frameon=False, fontsize=8)
    return figure

"""The plots of a leaderboard: which are written, that they repeat, and what stands in them.

SVG is text, but letters are drawn as paths: what a figure says is read from its artists.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from plot_tables import predictions, references, row
from v0_bench.errors import V0BenchError
from v0_bench.leaderboard import plots
from v0_bench.leaderboard.plots import auc_by_step, write_plots
from v0_bench.metrics import score

NO_CURVE = pd.DataFrame()
PNG = b"\x89PNG\r\n\x1a\n"


def curve(names: list[str], sizes: tuple[int, ...] = (16, 64, 256)) -> pd.DataFrame:
    place = {"pool": "invented", "protocol": "unseen-policy"}
    return pd.DataFrame(
        [
            place | {"predictor": name, "context_size": size, "auc": 0.5 + size / 1000}
            for name in names
            for size in sizes
        ]
    )


def names_of(paths: list[Path]) -> set[str]:
    return {path.name for path in paths}


def overlapping(figure) -> list[tuple[str, str]]:
    """Pairs of texts of a drawn figure whose boxes overlap, and texts that leave the page."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    beyond = {  # ticks outside the axes have labels that are not drawn
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }
    texts = [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(Text)
        if text.get_text() and text.get_visible() and text not in beyond
    ]
    page = figure.bbox
    outside = [
        (text, "page")
        for text, box in texts
        if min(box.x0, box.y0) < 1 or box.x1 > page.x1 - 1 or box.y1 > page.y1 - 1
    ]
    pairs = [
        (a, b)
        for i, (a, one) in enumerate(texts)
        for b, other in texts[i + 1 :]
        if min(one.x1, other.x1) - max(one.x0, other.x0) > 1
        and min(one.y1, other.y1) - max(one.y0, other.y0) > 1
    ]
    return outside + pairs


def test_every_plot_is_a_png_and_an_svg(tmp_path):
    names = ["ridge", "knn"]
    frame = predictions(names, steps=(1, 2, 3))
    rows = [row("ridge", 0.7, 1, policies=True), row("knn", 0.65, 2), *references()]
    paths = write_plots(tmp_path, {"rows": rows}, frame, curve(names))
    plots_made = ("auc", "reliability", "auc_by_step", "auc_by_context_size")
    assert names_of(paths) == {
        f"invented-unseen-policy-{name}.{kind}" for name in plots_made for kind in ("png", "svg")
    }
    assert names_of(paths) == {path.name for path in tmp_path.iterdir()}
    for path in paths:
        head = path.read_bytes()
        assert head.startswith(PNG) if path.suffix == ".png" else b"<svg" in head[:800]


def test_plots_that_make_no_sense_are_left_out(tmp_path):
    frame = predictions(["ridge"])
    rows = [row("ridge", 0.7, 1, width=None)]
    stems = {path.stem for path in write_plots(tmp_path, {"rows": rows}, frame, NO_CURVE)}
    assert stems == {"invented-unseen-policy-auc", "invented-unseen-policy-reliability"}
    one_size = curve(["ridge"], sizes=(0, 256))
    assert len(write_plots(tmp_path, {"rows": rows}, frame, one_size)) == 4
    failed = [row("ridge", None, None, status="error")]
    assert write_plots(tmp_path, {"rows": failed}, pd.DataFrame(), NO_CURVE) == []
    undefined = [row("ridge", None, None)]
    assert write_plots(tmp_path, {"rows": undefined}, frame, NO_CURVE) == []


def test_each_pool_and_protocol_has_its_own_plots_under_safe_names(tmp_path):
    shift = {"pool": "my pool", "protocol": "shift:set/0>set/1"}
    frame = pd.concat([predictions(["ridge"]), predictions(["ridge"], **shift)])
    rows = [row("ridge", 0.7, 1), row("ridge", 0.6, 1, **shift)]
    paths = write_plots(tmp_path / "new", {"rows": rows}, frame, NO_CURVE)
    assert {path.stem for path in paths} == {
        "invented-unseen-policy-auc",
        "invented-unseen-policy-reliability",
        "my-pool-shift-set-0-set-1-auc",
        "my-pool-shift-set-0-set-1-reliability",
    }


def test_the_bytes_depend_on_the_numbers_alone(tmp_path):
    names = ["ridge", "knn"]
    frame = predictions(names, steps=(1, 2), n_policies=2)
    rows = [row("ridge", 0.7, 1), row("knn", 0.65, 2)]
    once, again = (
        {
            path.name: path.read_bytes()
            for path in write_plots(tmp_path / folder, {"rows": rows}, frame, curve(names))
        }
        for folder in ("once", "again")
    )
    assert once == again
    assert not any(b"<dc:date>" in content for content in once.values())
    rows[0]["auc"]["value"] = 0.71
    changed = write_plots(tmp_path / "changed", {"rows": rows}, frame, curve(names))
    assert changed[0].read_bytes() != once[changed[0].name]


def test_auc_by_step_is_the_metric_of_the_rows_of_a_step():
    frame = predictions(["ridge", "knn"], steps=(1, 2, 30), n_policies=3, seeds=2)
    frame["prediction"] = frame["prediction"].round(1)  # ties
    few = (frame["policy"] == "p0") & (frame["step"] == 2)
    frame.loc[few, "mean_reward"] = (np.arange(few.sum()) % 30 == 0) / 1  # under 5 of a class
    table = auc_by_step(frame)
    assert table.shape == (2, 3)
    for name, part in frame.groupby("predictor"):
        for step in (1, 2, 30):
            rows = part[part["step"] == step]
            assert table.loc[name, step] == pytest.approx(score(rows)["auc"], abs=1e-12)
            slow = [
                roc_auc_score(one["mean_reward"] >= 0.5, one["prediction"])
                for (_, policy), one in rows.groupby(["seed", "policy"])
                if (policy, step) != ("p0", 2)
            ]
            assert table.loc[name, step] == pytest.approx(np.mean(slow), abs=1e-12)


@pytest.mark.parametrize("steps", [(None,), (16, 64, 256), tuple(range(25, 525, 25))])
@pytest.mark.parametrize("n", [1, 2, 5, 25])
def test_no_texts_overlap(steps, n):
    from matplotlib import rc_context

    names = [f"gaussian-process-embedding-{i}-long-context" for i in range(n)]
    frame = predictions(names, steps=steps, n_policies=2, n_queries=30)
    failed = [row(f"broken-{i}", None, None, status="error") for i in range(n)]
    ranked = [row(name, 0.7 - 0.01 * i, 1, policies=i % 2 == 0) for i, name in enumerate(names)]
    with rc_context(plots.STYLE):
        for name, figure in plots._figures([*ranked, *references(), *failed], frame, curve(names)):
            assert not overlapping(figure), name


def test_the_auc_plot_sorts_names_and_marks_references():
    frame = predictions(["knn", "ridge"])
    rows = [row("knn", 0.65, 2), row("ridge", 0.7, 1), *references(0.97, 0.68)]
    rows.append(row("tabpfn", None, None, status="not_applicable"))
    (name, figure), *_ = plots._figures(rows, frame, NO_CURVE)
    assert name == "auc"
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == [
        "ceiling",
        "ridge",
        "cross-policy-oracle",
        "knn",
    ]
    styles = [label.get_fontstyle() for label in labels]
    assert styles == ["italic", "normal", "italic", "normal"]
    assert "6 checkpoints; 60 test queries; 1 seed" in figure.get_suptitle()
    assert "without a value: tabpfn (not applicable)" in figure.get_suptitle()


def test_reliability_panels_hold_the_mean_rates_of_equal_mass_bins():
    frame = predictions(["ridge", "context-mean"], n_policies=3, n_queries=50)
    constant = frame["predictor"] == "context-mean"
    frame.loc[constant, "prediction"] = 0.4
    rows = [row("ridge", 0.7, 1), row("context-mean", 0.5, 2)]
    _, (name, figure) = plots._figures(rows, frame, NO_CURVE)
    assert name == "reliability"
    ridge, mean = (axes.containers[0].lines[0].get_xydata() for axes in figure.axes[:2])
    ordered = frame[~constant].sort_values("prediction")
    expected = [
        ordered[["prediction", "mean_reward"]].iloc[start : start + 10].mean()
        for start in range(0, 150, 10)
    ]
    np.testing.assert_allclose(ridge, expected)
    np.testing.assert_allclose(mean, [[0.4, frame.loc[constant, "mean_reward"].mean()]])


def test_at_most_eight_lines_and_six_panels():
    names = [f"p{i}" for i in range(12)]
    frame = predictions(names, steps=(1, 2), n_policies=2)
    rows = [row(name, 0.7 - 0.01 * i, 1 + i) for i, name in enumerate(names)]
    figures = dict(plots._figures(rows, frame, curve(names)))
    assert len(figures["reliability"].axes) == 6
    for name in ("auc_by_step", "auc_by_context_size"):
        labels = [text.get_text() for text in figures[name].axes[0].get_legend().get_texts()]
        assert sorted(labels) == names[:8]


def test_a_dollar_sign_in_a_name_is_drawn_as_it_stands(tmp_path):
    rows = [row("cost $1 \\frac", 0.7, 1)]
    frame = predictions(["cost $1 \\frac"], protocol="unseen-policy")
    assert len(write_plots(tmp_path, {"rows": rows}, frame, NO_CURVE)) == 4


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(V0BenchError, match="cannot write"):
        write_plots(
            tmp_path / "file", {"rows": [row("ridge", 0.7, 1)]}, predictions(["ridge"]), NO_CURVE
        )


def test_matplotlib_is_imported_late_and_pyplot_never(tmp_path):
    code = (
        "import sys, v0_bench.leaderboard.plots as plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from plot_tables import predictions, row\n"
        "import pandas as pd\n"
        "plots.write_plots(plots.Path(sys.argv[1]), {'rows': [row('ridge', 0.7, 1)]},"
        " predictions(['ridge']), pd.DataFrame())\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    folder = Path(__file__).parent
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=folder, check=True)
    shutil.rmtree(tmp_path)

"""The lm-eval importer, on the layout that lm-eval 0.4.13 writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pools import write_jsonl
from v0_bench import V0BenchError
from v0_bench.pool.importers import import_pool
from v0_bench.pool.importers.lm_eval_files import checkpoint_of

DATE = "2026-02-03T04-05-06.789012"
LATER = "2026-02-04T04-05-06.789012"


def sample(number: int, responses: int = 4, **more: Any) -> dict[str, Any]:
    """A line of a samples file: several responses, all kept by the filter."""
    answers = [str(k) for k in range(responses)]
    return {
        "doc_id": number,
        "doc": {"question": f"What is {number} + 1?", "answer": str(number + 1)},
        "target": str(number + 1),
        "arguments": {"gen_args_0": {"arg_0": f"Q: What is {number} + 1?\nA:", "arg_1": {}}},
        "resps": [answers],
        "filtered_resps": [answers],
        "filter": "keep_all",
        "metrics": ["avg@k", "exact_match"],
        "doc_hash": f"{number:064x}"[::-1],
        "prompt_hash": "0" * 64,
        "target_hash": "1" * 64,
        "avg@k": number / 4,
        "exact_match": 0.0,
    } | more


def write_run(
    folder: Path, model: str, samples: list[dict[str, Any]], task: str = "sums", date: str = DATE
) -> Path:
    """One run as lm-eval leaves it: a folder with a results file and a samples file."""
    place = folder / model.replace("/", "__")
    place.mkdir(parents=True, exist_ok=True)
    results = {"config": {"model": "hf", "model_args": {"pretrained": model, "dtype": "auto"}}}
    (place / f"results_{date}.json").write_text(json.dumps(results))
    return write_jsonl(place / f"samples_{task}_{date}.jsonl", samples)


def test_a_folder_of_runs_gives_checkpoints(tmp_path: Path) -> None:
    for step in (16, 32):
        samples = [sample(number) for number in range(5)]
        write_run(tmp_path, f"/ckpt/tiny-run/step_{step}", samples)
    write_run(tmp_path, "acme/tiny", [sample(number) for number in range(5)], task="more_sums")
    pool = import_pool(tmp_path).pool
    steps = pool.outcomes.groupby("policy")["step"].unique()
    assert sorted(steps["tiny-run"]) == [16, 32]
    assert steps["acme/tiny"].isna().all()
    assert pool.policies["policy"].tolist() == ["acme/tiny", "tiny-run"]
    assert set(pool.queries["dataset"]) == {"sums", "more_sums"}
    assert len(pool.queries) == 10  # shared by the checkpoints, not by the tasks
    assert pool.outcomes["mean_reward"].tolist() == [0, 0.25, 0.5, 0.75, 1] * 3
    assert set(pool.outcomes["n_rollouts"]) == {4}
    assert pool.queries["text"][0] == "What is 0 + 1?"
    assert pool.queries["answer"][0] == "1"


@pytest.mark.parametrize(
    ("path", "checkpoint"),
    [
        ("/data/runs/alpha/step_120", ("alpha", 120)),
        ("runs/alpha/global_step_7/", ("alpha", 7)),
        ("runs/alpha/checkpoint-500", ("alpha", 500)),
        ("acme/alpha", ("acme/alpha", None)),
        ("/models/alpha", ("alpha", None)),
        ("./alpha", ("alpha", None)),
        ("alpha", ("alpha", None)),
        ("step_3", ("step_3", None)),
        ("/", ("/", None)),
    ],
)
def test_policy_and_step_in_a_path(path: str, checkpoint: tuple[str, int | None]) -> None:
    assert checkpoint_of(path) == checkpoint


def test_a_lone_samples_file_needs_a_policy(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "samples_sums.jsonl", [sample(1)])
    with pytest.raises(V0BenchError, match="pass --policy NAME"):
        import_pool(file)
    outcomes = import_pool(file, policy="tiny", step=9).pool.outcomes
    assert outcomes[["policy", "step"]].values.tolist() == [["tiny", 9]]
    assert import_pool(file, policy="tiny").pool.outcomes["step"].isna().all()


def test_options_go_before_the_path(tmp_path: Path) -> None:
    file = write_run(tmp_path, "/ckpt/tiny-run/step_16", [sample(1)])
    for source in (file, tmp_path):
        outcomes = import_pool(source, policy="mine").pool.outcomes
        assert outcomes[["policy", "step"]].values.tolist() == [["mine", 16]]
        assert import_pool(source, step=3).pool.outcomes["step"].tolist() == [3]


def test_two_models_do_not_become_one_policy_unnoticed(tmp_path: Path) -> None:
    write_run(tmp_path, "acme/tiny", [sample(1)])
    write_run(tmp_path, "acme/huge", [sample(1)], date=LATER)
    with pytest.raises(V0BenchError, match="would both be policy 'mine'"):
        import_pool(tmp_path, policy="mine")


def test_the_newest_run_of_a_task_counts(tmp_path: Path) -> None:
    write_run(tmp_path, "acme/tiny", [sample(1, **{"avg@k": 1.0})], date=LATER)
    write_run(tmp_path, "acme/tiny", [sample(1)])
    imported = import_pool(tmp_path)
    assert imported.pool.outcomes["mean_reward"].tolist() == [1.0]
    assert imported.notes == ("left out 1 samples file of older runs",)


def test_metrics_by_name_and_by_default(tmp_path: Path) -> None:
    file = write_run(tmp_path, "acme/tiny", [sample(2, other=0.125)])
    assert import_pool(file).pool.outcomes["mean_reward"].tolist() == [0.5]
    assert import_pool(file, metric="other").pool.outcomes["mean_reward"].tolist() == [0.125]
    with pytest.raises(V0BenchError, match="line 1: unknown metric 'exact': did you mean"):
        import_pool(file, metric="exact")
    for key, value in (("avg@10", 0.9), ("exact_match", 0.25), ("acc", 1.0), ("acc", True)):
        row = {k: v for k, v in sample(2).items() if k not in ("avg@k", "exact_match")}
        file = write_run(tmp_path, "acme/tiny", [row | {key: value, "acc_norm": 0.0}])
        assert import_pool(file).pool.outcomes["mean_reward"].tolist() == [float(value)]
    row = {k: v for k, v in sample(2).items() if k not in ("avg@k", "exact_match")}
    file = write_run(tmp_path, "acme/tiny", [row | {"metrics": ["bleu"], "bleu": 0.1}])
    with pytest.raises(V0BenchError, match=r"pass --metric .* bleu"):
        import_pool(file)


def test_a_metric_that_saw_one_of_several_responses_counts_one(tmp_path: Path) -> None:
    first = [sample(n, filter="first", filtered_resps=["0"]) for n in range(3)]
    both = [sample(n, filter="all", exact_match=1.0) for n in range(3)]
    file = write_run(tmp_path, "acme/tiny", [*first, *both])
    imported = import_pool(file, metric="exact_match")
    assert set(imported.pool.outcomes["n_rollouts"]) == {1}
    assert "left out 3 rows of" in imported.notes[0]
    assert "--metric exact_match,all takes those" in imported.notes[0]
    outcomes = import_pool(file, metric="exact_match,all").pool.outcomes
    assert set(outcomes["n_rollouts"]) == {4}
    assert set(outcomes["mean_reward"]) == {1.0}
    with pytest.raises(V0BenchError, match="unknown filter 'al': did you mean 'all'"):
        import_pool(file, metric="exact_match,al")


def test_choices_by_likelihood_are_one_rollout(tmp_path: Path) -> None:
    row = sample(1, acc=1.0) | {
        "resps": [[["-0.2", "False"]], [["-0.9", "False"]]],
        "filtered_resps": [["-0.2", "False"], ["-0.9", "False"]],
    }
    del row["avg@k"], row["exact_match"]
    outcomes = import_pool(write_run(tmp_path, "acme/tiny", [row])).pool.outcomes
    assert outcomes["n_rollouts"].tolist() == [1]
    assert outcomes["mean_reward"].tolist() == [1.0]


def test_copies_of_a_document_stay_apart(tmp_path: Path) -> None:
    rows = [sample(1), sample(1) | {"doc_id": 2}]
    pool = import_pool(write_run(tmp_path, "acme/tiny", rows)).pool
    assert pool.queries["query_id"].is_unique
    assert len(pool.queries) == 2


def test_texts_are_found_or_rendered(tmp_path: Path) -> None:
    rows = [
        sample(1) | {"doc": {"Problem": "A problem."}},
        sample(2) | {"doc": {"stem": "hidden"}},
        sample(3) | {"doc": {"stem": "hidden"}, "arguments": [["Old layout:", {}]]},
    ]
    pool = import_pool(write_run(tmp_path, "acme/tiny", rows)).pool
    assert pool.queries["text"].tolist() == ["A problem.", "Q: What is 2 + 1?\nA:", "Old layout:"]
    rows = [sample(1) | {"doc": {}, "arguments": {}}]
    with pytest.raises(V0BenchError, match="line 1: no text found"):
        import_pool(write_run(tmp_path, "acme/tiny", rows))


def test_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(V0BenchError, match=r"holds no samples_\*.jsonl"):
        import_pool(tmp_path, "lm-eval")
    for change, message in (
        ({"avg@k": 1.5}, "jsonl:1: mean_reward = '1.5' is not in"),
        ({"resps": "lost"}, "line 1: resps is not a list"),
        ({"resps": [[]]}, "n_rollouts = '0' is below 1"),
        ({"doc_hash": None, "doc_id": None}, "neither doc_hash nor doc_id"),
    ):
        file = write_run(tmp_path, "acme/tiny", [sample(1) | change])
        with pytest.raises(V0BenchError) as caught:
            import_pool(file)
        assert message in str(caught.value)
    with pytest.raises(V0BenchError, match="empty"):
        import_pool(write_run(tmp_path, "acme/tiny", []))


def own_names(number: int, **names: str) -> dict[str, Any]:
    """A sample whose document has its own id, and perhaps a data set."""
    row = sample(number)
    return row | {"doc": row["doc"] | names}


def test_a_document_keeps_its_own_id(tmp_path: Path) -> None:
    """With its data set it stands alone; without one, two tasks may use one id."""
    write_run(tmp_path, "m/a", [own_names(n, query_id=f"{n}") for n in range(3)], task="sums")
    write_run(tmp_path, "m/a", [own_names(n, query_id=f"{n}") for n in range(2)], task="terms")
    named = [own_names(n, query_id=f"halves-{n}", dataset="halves") for n in range(2)]
    write_run(tmp_path, "m/a", named, task="micro")
    queries = import_pool(tmp_path).pool.queries
    assert dict(zip(queries["query_id"], queries["dataset"], strict=True)) == {
        "sums/0": "sums",
        "sums/1": "sums",
        "sums/2": "sums",
        "terms/0": "terms",
        "terms/1": "terms",
        "halves-0": "halves",
        "halves-1": "halves",
    }


def test_a_data_set_without_an_id_and_ids_that_are_no_text_change_nothing(tmp_path: Path) -> None:
    odd = [own_names(0, dataset="other"), own_names(1, query_id=""), own_names(2)]
    odd[2]["doc"]["query_id"] = 7
    write_run(tmp_path, "m/a", odd)
    plain = import_pool(write_run(tmp_path / "plain", "m/a", [sample(n) for n in range(3)])).pool
    queries = import_pool(tmp_path / "m__a").pool.queries
    assert queries["query_id"].tolist() == plain.queries["query_id"].tolist()
    assert set(queries["dataset"]) == {"sums"}


def test_copies_of_an_id_are_told_apart(tmp_path: Path) -> None:
    rows = [own_names(n, query_id="same") for n in range(2)]
    file = write_run(tmp_path, "m/a", rows)
    assert import_pool(file).pool.queries["query_id"].tolist() == ["sums/same", "sums/same-1"]

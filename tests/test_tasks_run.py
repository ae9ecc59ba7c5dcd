"""The tasks inside lm-eval: every trap of repeated sampling, with models that answer as told."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from lm_eval import evaluate, simple_evaluate
from lm_eval.api.model import CachingLM
from lm_eval.tasks import TaskManager

from gt_models import TASKS, ScriptedLM, rows, write_jsonl
from v0_bench.errors import V0BenchError
from v0_bench.pool.importers import import_pool
from v0_bench.rollouts.rollout import Rollout
from v0_bench.tasks import FOLDER

QUERIES = 3


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    return {
        task: str(write_jsonl(tmp_path / f"{task}.jsonl", rows(kind, QUERIES)))
        for task, kind in TASKS.items()
    }


def manager(metadata: dict[str, object]) -> TaskManager:
    return TaskManager(include_path=FOLDER, include_defaults=False, metadata=metadata)


def load(name: str, metadata: dict[str, object]):
    return manager(metadata).load([name])["tasks"][name]


def script(right: list[int]) -> dict[str, list[str]]:
    """The n-th query is answered right in its first right[n-1] of 10 rollouts, all distinct."""
    return {
        f"have {number} herons": [
            rf"Thought {draw}.{chr(10) * 2}So \boxed{{{2 * number if draw < count else -draw}}}"
            for draw in range(10)
        ]
        for number, count in enumerate(right, 1)
    }


def test_ten_rollouts_are_kept_and_scored(files):
    lm = ScriptedLM(script([10, 4, 1]))
    results = evaluate(lm, manager(files).load(["v0_gt_aime24"]))
    rates = np.array([1.0, 0.4, 0.1])
    scores = results["results"]["v0_gt_aime24"]
    assert scores["avg@k,none"] == pytest.approx(rates.mean())
    assert scores["avg@k_stderr,none"] == pytest.approx(rates.std(ddof=1) / 3**0.5)
    assert scores["pass@1,none"] == pytest.approx(rates.mean())
    assert scores["pass@10,none"] == 1.0
    assert scores["pass@2,none"] == pytest.approx((1 + (1 - 15 / 45) + (1 - 36 / 45)) / 3)
    assert scores["k,none"] == 10
    assert scores["distinct_rate,none"] == 1.0
    assert scores["no_answer_rate,none"] == 0.0
    assert scores["verdicts,none"] == "different 15, equal 15"
    assert results["configs"]["v0_gt_aime24"]["repeats"] == 10
    assert results["configs"]["v0_gt_aime24"]["metadata"]["math_verify"] == "0.9.0"
    for sample in results["samples"]["v0_gt_aime24"]:
        assert len(sample["resps"][0]) == len(sample["filtered_resps"][0]) == 10
        assert len(sample["verdicts"]) == 10


def test_sampling_is_stated_and_no_stop_string_cuts_a_thought(files):
    lm = ScriptedLM(script([0, 0, 0]))
    evaluate(lm, manager(files).load(["v0_gt_math500"]))
    assert lm.requests[0].args[1] == {
        "until": [],
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "max_gen_toks": 4096,
    }


@pytest.mark.parametrize("task", TASKS)
def test_every_task_asks_for_a_box(files, task):
    made = load(task, files)
    prompt = made.doc_to_text(made.eval_docs[0])
    assert "How many legs have 1 herons?" in prompt
    assert prompt.endswith(r"within \boxed{}.")
    assert ("\nD) " in prompt) == (TASKS[task] == "choice")


def test_answers_of_extra_copies_are_dropped(files):
    """A run on several processes repeats the last query to even out the batches."""
    task = load("v0_gt_aime24", files)
    task.build_all_requests()
    for instance in task.instances:
        instance.resps += [f"first {n}" for n in range(10)] + [f"copy {n}" for n in range(10)]
    task.apply_filters()
    for instance in task.instances:
        assert instance.resps == instance.filtered_resps["none"]
        assert instance.resps == [f"first {n}" for n in range(10)]


def test_a_response_cache_never_serves_sampled_answers(files, tmp_path):
    cache = str(tmp_path / "cache.db")
    for right in ([10, 10, 10], [0, 0, 0]):
        lm = CachingLM(ScriptedLM(script(right)), cache)
        results = evaluate(lm, manager(files).load(["v0_gt_aime24"]))["results"]["v0_gt_aime24"]
        assert results["avg@k,none"] == right[0] / 10
        assert results["distinct_rate,none"] == 1.0


def test_cached_prompts_are_refused(files):
    with pytest.raises(V0BenchError, match="cache_requests"):
        load("v0_gt_aime24", files).build_all_requests(cache_requests=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 3}, "same seed"),
        ({"do_sample": False}, "without sampling"),
        ({"temperature": 0.0}, "without sampling"),
    ],
)
def test_options_that_copy_one_rollout_are_refused(files, options, message):
    task = load("v0_gt_aime24", files)
    task.set_config("generation_kwargs", options, update=True)
    with pytest.raises(V0BenchError, match=message):
        task.build_all_requests()


def test_the_command_line_overrides_one_sampling_option_at_a_time(files):
    lm = ScriptedLM(script([0, 0, 0]))
    task_manager = manager(files)
    options = {"temperature": 0.6, "max_gen_toks": 32768}
    simple_evaluate(lm, tasks=["v0_gt_aime24"], task_manager=task_manager, gen_kwargs=options)
    assert lm.requests[0].args[1] == {
        "until": [],
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "max_gen_toks": 32768,
    }


def test_cutting_thoughts_off_is_refused(files):
    with pytest.raises(V0BenchError, match="keep-thought"):
        load("v0_gt_aime24", files | {"think_end_token": "</think>"})
    load("v0_gt_aime24", files | {"think_end_token": "<keep-thought>"})


def test_an_unfinished_thought_is_no_answer(files):
    thoughts = [r"<think> maybe \boxed{2}"] * 5 + [r"<think> hm </think> \boxed{2}"] * 5
    lm = ScriptedLM(script([0, 0, 0]) | {"have 1 herons": thoughts})
    results = evaluate(lm, manager(files).load(["v0_gt_aime24"]))
    first = results["samples"]["v0_gt_aime24"][0]
    assert first["avg@k"] == first["no_answer_rate"] == 0.5
    assert first["verdicts"][0]["reason"] == "unfinished thought"


def test_replicas_with_one_seed_are_warned_of(files, caplog):
    with caplog.at_level(logging.WARNING, "lm_eval"):
        load("v0_gt_aime24", files | {"data_parallel_size": 2})
    assert "distinct_rate" in caplog.text


def test_finish_reasons_and_tokens_reach_the_metrics(files):
    cut = [Rollout("and then 3 times", "length", 20)] * 5 + [Rollout(r"\boxed{2}", "stop", 10)] * 5
    lm = ScriptedLM({f"have {n} herons": cut for n in (1, 2, 3)})
    results = evaluate(lm, manager(files).load(["v0_gt_aime24"]))
    scores = results["results"]["v0_gt_aime24"]
    assert scores["truncation_rate,none"] == 0.5
    assert scores["mean_tokens,none"] == 15.0
    assert "truncated 15" in scores["verdicts,none"]
    assert json.dumps(results["samples"])


def test_options_of_a_question_never_move(files):
    docs = [list(load("v0_gt_gpqa_diamond", files).eval_docs) for _ in range(2)]
    task = load("v0_gt_gpqa_diamond", files)
    docs += [list(task.eval_docs), list(task.eval_docs)]
    assert all(other == docs[0] for other in docs)
    for number, doc in enumerate(docs[0], 1):
        assert f"\n{doc['answer']}) {2 * number}" in doc["text"]


def test_no_question_of_a_gated_task_is_printed(files, caplog, capfd):
    letters = [f"answer {n}: \\boxed{{A}}" for n in range(10)]
    lm = ScriptedLM({f"have {n} herons": letters for n in (1, 2, 3)})
    with caplog.at_level(logging.DEBUG):
        evaluate(lm, manager(files).load(["v0_gt_gpqa_diamond"]))
    printed = capfd.readouterr()
    assert "do not publish" in caplog.text
    assert "heron" not in caplog.text + printed.out + printed.err


def test_an_answer_in_brackets_stays_text(tmp_path):
    row = {"query_id": "a", "text": "Which interval?", "answer": "[1, 2]"}
    path = write_jsonl(tmp_path / "p.jsonl", [row])
    task = load("v0_gt_math500", {"v0_gt_math500": str(path)})
    assert task.doc_to_target(task.eval_docs[0]) == "[1, 2]"


def test_what_is_left_out_is_recorded(tmp_path, caplog):
    kept, conflict = rows("integer", 2)
    path = write_jsonl(
        tmp_path / "p.jsonl",
        [kept, kept | {"query_id": "twin"}, conflict, conflict | {"query_id": "c", "answer": 5}],
    )
    with caplog.at_level(logging.INFO, "lm_eval"):
        task = load("v0_gt_dapo_math", {"v0_gt_dapo_math": str(path)})
    metadata = task.dump_config()["metadata"]
    assert metadata["problems"] == metadata["duplicates_dropped"] == 1
    assert metadata["quarantined"] == [["h2", "c"]]
    assert "1 exact duplicates, and 1 texts with conflicting answers (2 rows)" in caplog.text


def test_the_group_averages_over_all_queries(files, tmp_path):
    write_jsonl(Path(files["v0_gt_aime24"]), rows("integer", 2))
    answers = {f"have {n} herons": [f"{d}: \\boxed{{2}}" for d in range(60)] for n in (1, 2, 3)}
    results = evaluate(ScriptedLM(answers), manager(files).load(["v0_gt"]))
    queries = [s["avg@k"] for task in TASKS for s in results["samples"][task]]
    assert len(queries) == 5 * QUERIES + 2
    assert results["groups"]["v0_gt"]["avg@k,none"] == pytest.approx(np.mean(queries))
    assert results["groups"]["v0_gt"]["avg@k_stderr,none"] > 0


def test_responses_alone_can_be_collected(files):
    """`--predict_only` takes the metrics away."""
    lm = ScriptedLM(script([1, 1, 1]))
    results = simple_evaluate(
        lm, tasks=["v0_gt_aime24"], task_manager=manager(files), predict_only=True
    )
    assert [len(s["resps"][0]) for s in results["samples"]["v0_gt_aime24"]] == [10] * QUERIES


def test_samples_become_a_pool_of_ten_rollouts(files, tmp_path):
    results = evaluate(ScriptedLM(script([10, 4, 1])), manager(files).load(["v0_gt_aime24"]))
    path = tmp_path / "samples_v0_gt_aime24_2026-01-01T00-00-00.000000.jsonl"
    write_jsonl(path, results["samples"]["v0_gt_aime24"])
    pool = import_pool(path, "lm-eval", "p", policy="scripted", step=2).pool
    assert set(pool.outcomes["n_rollouts"]) == {10}
    assert sorted(pool.outcomes["mean_reward"]) == [0.1, 0.4, 1.0]
    assert set(pool.queries["text"]) == {f"How many legs have {n} herons?" for n in (1, 2, 3)}

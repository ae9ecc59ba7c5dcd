"""The task `v0_gt_micro` in lm-eval, on the policies that ship with the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from gt_models import write_jsonl
from v0_bench.errors import V0BenchError
from v0_bench.micro import POLICIES, held_out, step_zero
from v0_bench.pool.importers import import_pool
from v0_bench.tasks import FOLDER

LIMIT = 12


def manager() -> TaskManager:
    return TaskManager(include_path=str(FOLDER), include_defaults=False)


def test_the_task_holds_the_held_out_set_without_hub_or_file() -> None:
    task = manager().load(["v0_gt_micro"])["tasks"]["v0_gt_micro"]
    docs = list(task.eval_docs)
    assert [(doc["query_id"], doc["dataset"], doc["text"], doc["answer"]) for doc in docs] == [
        (problem.query_id, problem.family, problem.text, problem.answer) for problem in held_out()
    ]
    assert task.config.repeats == 10
    assert task.config.generation_kwargs["max_gen_toks"] == 8
    assert task.doc_to_text(docs[0]) == docs[0]["text"]


def test_a_shipped_policy_is_measured_and_becomes_a_pool(tmp_path: Path) -> None:
    folder = step_zero("micro-llama")
    results = simple_evaluate(
        HFLM(pretrained=str(folder), device="cpu", batch_size=10 * LIMIT),
        tasks=["v0_gt_micro"],
        task_manager=manager(),
        limit=LIMIT,
        apply_chat_template=True,
        torch_random_seed=1,
    )
    scores = results["results"]["v0_gt_micro"]
    assert scores["no_answer_rate,none"] < 0.1  # the format was learnt
    assert scores["distinct_rate,none"] > 0.1
    samples = results["samples"]["v0_gt_micro"]
    file = write_jsonl(tmp_path / "samples_v0_gt_micro_2026-01-01T00-00-00.000000.jsonl", samples)
    pool = import_pool(file, "lm-eval", policy="micro-llama", step=0).pool
    assert pool.queries["query_id"].tolist() == [f"addition-held-{n:03d}" for n in range(LIMIT)]
    assert set(pool.queries["dataset"]) == {"addition"}
    assert set(pool.outcomes["n_rollouts"]) == {10}
    assert pool.outcomes["mean_reward"].mean() == pytest.approx(scores["avg@k,none"])


@pytest.mark.parametrize("name", POLICIES)
def test_a_shipped_policy_is_small_and_answers_in_a_box(name: str) -> None:
    folder = step_zero(name)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 3_000_000
    weights = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert 250_000 < model.num_parameters() < 1_500_000
    chats = [[{"role": "user", "content": problem.text}] for problem in held_out()[::40]]
    batch = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, return_tensors="pt", return_dict=True, padding=True
    )
    out = model.generate(**batch, do_sample=False, max_new_tokens=8)
    answers = tokenizer.batch_decode(
        out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
    )
    boxed = [answer.startswith("\\boxed{") and answer.endswith("}") for answer in answers]
    assert sum(boxed) >= 0.9 * len(boxed)


def test_the_policies_are_of_three_architectures() -> None:
    kinds = {type(AutoModelForCausalLM.from_pretrained(step_zero(name))) for name in POLICIES}
    assert len(kinds) == len(POLICIES) == 3


def test_every_digit_and_the_box_are_one_token_and_no_text_is_lost() -> None:
    tokenizer = AutoTokenizer.from_pretrained(step_zero("micro-llama"))
    tokens = tokenizer.tokenize("\\boxed{4071}")
    assert tokens == ["\\boxed{", "4", "0", "7", "1", "}"]
    assert len(tokenizer) <= 1000
    for text in (*(problem.text for problem in held_out()), "naïve ‘quotes’\n 中文 \\frac12"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_an_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(V0BenchError, match="did you mean 'micro-llama'"):
        step_zero("micro-lama")

"""`v0-hf` against lm-eval's own `hf` and against the model's exact probabilities."""

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from rollout_runs import save_checkpoint
from v0_bench.errors import V0BenchError
from v0_bench.rollouts.hf import RolloutHFLM

SAMPLING = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
KINDS = ("llama", "qwen2", "neox")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        save_checkpoint(folder / kind, kind)
    return folder


def request(prompt: str, **options: object) -> Instance:
    arguments = (prompt, {"until": [], "max_gen_toks": 6} | options)
    return Instance("generate_until", {}, arguments, 0)


def load(path, **options: object) -> RolloutHFLM:
    torch.set_num_threads(1)
    return RolloutHFLM(pretrained=str(path), device="cpu", **{"batch_size": 64} | options)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_answers_are_those_of_hf(folder, kind):
    """Prompts of different lengths, read once and padded, give what reading each alone gives."""
    prompts = ["a", "How many legs has it?", "So? " * 9, "How many legs have 7 herons?"]
    requests = [request(prompt, do_sample=False) for prompt in prompts]
    plain = HFLM(pretrained=str(folder / kind), device="cpu", batch_size=1)
    expected = plain.generate_until(requests, disable_tqdm=True)
    repeated = [item for item in requests for _ in range(3)]
    found = load(folder / kind, batch_size=6).generate_until(repeated, disable_tqdm=True)
    assert found == [text for text in expected for _ in range(3)]
    assert len(set(found)) > 1


def test_first_tokens_follow_the_models_probabilities(folder):
    """4,000 rollouts of one prompt: the total variation to the softmax is that of chance."""
    model, draws = load(folder / "llama", batch_size=4000), 4000
    torch.manual_seed(0)
    item = request("How?", max_gen_toks=1, **SAMPLING)
    rollouts = model.generate_until([item] * draws)
    ids = torch.tensor([model.tok_encode("How?")])
    with torch.no_grad():
        logits = model.model(ids).logits[0, -1]
    exact = torch.softmax(logits, -1).numpy()
    texts = [model.tokenizer.decode([token], skip_special_tokens=True) for token in range(99)]
    expected = dict.fromkeys(texts, 0.0)
    for text, probability in zip(texts, exact, strict=True):
        expected[text] += float(probability)
    found = {text: rollouts.count(text) / draws for text in texts}
    distance = sum(abs(found[text] - expected[text]) for text in expected) / 2
    by_chance = sum(np.sqrt(p * (1 - p) / draws) for p in expected.values()) * 0.4
    assert distance < 1.5 * by_chance
    assert max(expected.values()) < 0.9


def test_temperature_and_top_k_reach_the_sampling(folder):
    model = load(folder / "llama")
    torch.manual_seed(0)
    alone = model.generate_until([request("How?", **SAMPLING | {"top_k": 1})] * 10)
    assert len(set(alone)) == 1
    assert len(set(model.generate_until([request("How?", **SAMPLING)] * 10))) > 5


def test_endings_and_lengths(folder):
    """Compared with the sequences that `generate` returns, read token by token."""
    model = load(folder / "llama")
    sequences: list[list[int]] = []
    generate = model.model.generate

    def spy(**options: object) -> torch.Tensor:
        out = generate(**options)
        sequences.extend(out[:, options["input_ids"].shape[1] :].tolist())
        return out

    model.model.generate = spy
    torch.manual_seed(0)
    rollouts = model.generate_until([request("How?", max_gen_toks=60, **SAMPLING)] * 60)
    for ids, rollout in zip(sequences, rollouts, strict=True):
        ended = 1 in ids  # <eos>
        assert rollout.finish_reason == ("stop" if ended else "length")
        assert rollout.tokens == (ids.index(1) + 1 if ended else 60)
    assert {rollout.finish_reason for rollout in rollouts} == {"stop", "length"}


def test_stop_strings_end_a_rollout(folder):
    model = load(folder / "llama")
    torch.manual_seed(0)
    options = {"max_gen_toks": 40, **SAMPLING}
    free = model.generate_until([request("How?", **options)] * 50)
    letter = max("abcdefgh", key=lambda letter: sum(letter in text for text in free))
    torch.manual_seed(0)
    cut = model.generate_until([request("How?", until=[letter], **options)] * 50)
    assert not any(letter in text for text in cut)
    stopped = [rollout for rollout in cut if rollout.finish_reason == "stop"]
    assert len(stopped) > 5
    # a character is a token here, and the stop string or the end is one more
    assert all(len(rollout) <= rollout.tokens - 1 for rollout in stopped)
    assert any(rollout.tokens < 40 for rollout in stopped)


def test_a_limit_beyond_the_context_is_lowered_and_a_prompt_never_cut(folder):
    model = load(folder / "llama", max_length=20)
    torch.manual_seed(0)
    rollouts = model.generate_until([request("x" * 16, max_gen_toks=100, **SAMPLING)] * 30)
    assert max(rollout.tokens for rollout in rollouts) == 4
    with pytest.raises(V0BenchError, match="20 tokens leaves no room in the model's context of 20"):
        model.generate_until([request("x" * 20, **SAMPLING)])


def test_answers_come_in_the_order_of_the_requests(folder):
    """Batches are sorted by length and mixed options are kept apart."""
    model = load(folder / "llama", batch_size=4)
    prompts = ["x" * length for length in (3, 9, 1, 7, 5)]
    items = [
        request(prompt, do_sample=False, max_gen_toks=2 + at % 2)
        for at, prompt in enumerate(prompts)
    ]
    alone = [model.generate_until([item])[0] for item in items]
    together = model.generate_until([item for item in items for _ in range(2)])
    assert together == [text for text in alone for _ in range(2)]

"""`v0-vllm` on real vLLM, which runs on a CPU too; `make test-vllm` has what it takes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

from gt_models import rows, save_tiny_model, write_jsonl
from v0_bench.errors import V0BenchError
from v0_bench.rollouts.journal import Journal
from v0_bench.rollouts.vllm import RolloutVLLM

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM: make test-vllm"),
]

CONTEXT = 128
ON_A_SMALL_CPU = {"dtype": "float32", "enforce_eager": True, "max_model_len": CONTEXT}
ONE_PROCESS = {  # starts in half the time
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
OPTIONS = {"until": [], "do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
QUERIES = 120


def copies(prompt: str, count: int = 10, **options: object) -> list[Instance]:
    return [Instance("generate_until", {}, (prompt, OPTIONS | options), 0)] * count


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "step_0", True, hidden_size=64)


@pytest.fixture(scope="module")
def journal(tmp_path_factory) -> Iterator[Journal]:
    with Journal(tmp_path_factory.mktemp("journal") / "j.jsonl") as opened:
        yield opened


@pytest.fixture(scope="module")
def model(checkpoint, journal) -> RolloutVLLM:
    os.environ.update(ONE_PROCESS)
    return RolloutVLLM(str(checkpoint), journal=journal, **ON_A_SMALL_CPU)


@pytest.fixture
def sent(model, monkeypatch) -> list[tuple[list[int], Any]]:
    """Prompt and sampling parameters of every request that the engine gets."""
    engine = model._llm.llm_engine
    add, seen = engine.add_request, []

    def add_request(number: str, prompt: Any, params: Any) -> Any:
        seen.append((prompt["prompt_token_ids"], params))
        return add(number, prompt, params)

    monkeypatch.setattr(engine, "add_request", add_request)
    return seen


def test_a_query_is_one_request_with_ten_distinct_samples(model, sent, journal):
    prompts = [f"{number} + 1 =" for number in range(20)]
    before = len(journal)
    requests = [copy for prompt in prompts for copy in copies(prompt, max_gen_toks=24)]
    answers = model.generate_until(requests)
    assert len(sent) == len(journal) - before == len(prompts)
    assert [ids for ids, _ in sent] == [model.tok_encode(prompt) for prompt in prompts]
    for _, params in sent:
        assert (params.n, params.seed, params.max_tokens) == (10, None, 24)
        assert (params.temperature, params.top_p, params.top_k) == (1.0, 1.0, 0)
        assert params.repetition_penalty == 1.0
    for start in range(0, len(answers), 10):
        assert len(set(answers[start : start + 10])) == 10
    for answer in answers:
        assert answer.finish_reason in ("stop", "length")
        assert 1 <= answer.tokens <= 24
        assert answer.finish_reason == "stop" or answer.tokens == 24
    assert {answer.finish_reason for answer in answers} == {"stop", "length"}
    assert model.generate_until(requests) == answers
    assert len(sent) == len(prompts)


def test_tasks_that_share_a_query_share_its_rollouts(model, sent):
    answers = model.generate_until(copies("5 + 5 =") + copies("5 + 6 =") + copies("5 + 5 ="))
    assert len(sent) == 2
    assert answers[:10] == answers[20:] != answers[10:20]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_follow_the_models_distribution(model, checkpoint, temperature):
    """Against probabilities computed by transformers, for the first token."""
    prompt, draws = "[user] 2 + 2 =[assistant] ", 4000
    answers = model.generate_until(
        copies(prompt, draws, temperature=temperature, max_gen_toks=1), disable_tqdm=True
    )
    inner = AutoModelForCausalLM.from_pretrained(checkpoint)
    with torch.inference_mode():
        logits = inner(torch.tensor([model.tok_encode(prompt)])).logits[0, -1]
    expected = draws * (logits.double() / temperature).softmax(-1)
    counts = Counter(answer[1:] for answer in answers)  # this tokenizer puts a blank between tokens
    special = set(model.tokenizer.all_special_ids)
    tokens = [token for token in range(len(expected)) if token not in special]
    seen = [counts.pop(model.tokenizer.decode([token]), 0) for token in tokens]
    assert sum(counts.values()) == counts[""]  # all else are special tokens, which are not shown
    wanted = [expected[token].item() for token in tokens]
    assert chisquare([*seen, counts[""]], [*wanted, draws - sum(wanted)]).pvalue > 1e-3


def test_sampling_options_reach_the_engine(model):
    greedy = model.generate_until(copies("7 - 2 =", top_k=1, max_gen_toks=12))
    assert len(set(greedy)) == 1
    letter = next(character for character in greedy[0] if character.strip())
    stopped = model.generate_until(copies("7 - 2 =", top_k=1, until=[letter], max_gen_toks=12))
    assert set(stopped) == {greedy[0][: greedy[0].index(letter)]}
    assert {answer.finish_reason for answer in stopped} == {"stop"}


def test_the_token_limit_is_lowered_and_the_prompt_left_whole(model, sent):
    prompt = "a" * (CONTEXT - 5)
    answers = model.generate_until(copies(prompt, max_gen_toks=1000))
    ((ids, params),) = sent
    assert len(ids) == CONTEXT - 5
    assert params.max_tokens == 5
    assert all(answer.tokens == 5 or answer.finish_reason == "stop" for answer in answers)
    assert "length" in {answer.finish_reason for answer in answers}


def test_a_prompt_without_room_stops_the_run_before_it_samples(model, sent, journal):
    before = len(journal)
    with pytest.raises(V0BenchError, match=r"1 of 2 prompts leave no room.* 128 .* has 128"):
        model.generate_until(copies("short one") + copies("a" * CONTEXT))
    assert not sent
    assert len(journal) == before


@pytest.mark.parametrize("options", [{"top_q": 1}, {"top_p": 3.0}, {"temperature": 0.0}])
def test_options_that_vllm_does_not_know_are_told(model, sent, options):
    with pytest.raises(V0BenchError, match="vLLM refuses the sampling options"):
        model.generate_until(copies("1 + 2 =", **options))
    assert not sent


def test_an_engine_that_does_not_start_is_told(checkpoint):
    model = RolloutVLLM(str(checkpoint), **ON_A_SMALL_CPU, no_such_argument=3)
    with pytest.raises(V0BenchError, match=r"vLLM does not start on .*no_such_argument"):
        model.generate_until(copies("1 + 2 ="))


class Run:
    """The command line on one set of queries, journal and output folder."""

    def __init__(self, folder: Path, checkpoint: Path, model: str = "v0-vllm") -> None:
        problems = write_jsonl(folder / "p.jsonl", rows("integer", QUERIES))
        self.journal, self.out = folder / "journal.jsonl", folder / "out"
        self.log = folder / "log"
        arguments = {"pretrained": checkpoint, **ON_A_SMALL_CPU, "max_num_seqs": 20}
        if model == "v0-vllm":
            arguments["journal"] = self.journal
        self.command = [
            str(Path(sys.executable).with_name("lm_eval")),
            *("--model", model, "--batch_size", "auto"),
            *("--model_args", ",".join(f"{name}={value}" for name, value in arguments.items())),
            *("--tasks", "v0_gt_aime24", "--metadata", f"v0_gt_aime24={problems}"),
            *("--gen_kwargs", "max_gen_toks=40", "--apply_chat_template"),
            *("--log_samples", "--output_path", str(self.out)),
        ]

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                self.command,
                cwd=self.out.parent,
                env=os.environ | environment,
                stdout=log,
                stderr=log,
            )

    def finish(self, **environment: str) -> None:
        assert self.start(**environment).wait() == 0, self.log.read_text()

    def lines(self) -> list[bytes]:
        """Of the journal, whole ones only."""
        text = self.journal.read_bytes() if self.journal.exists() else b""
        return text.splitlines(keepends=True)[: text.count(b"\n")]

    def samples(self) -> list[dict[str, Any]]:
        newest = max(self.out.rglob("samples_*.jsonl"))
        return [json.loads(line) for line in newest.read_text().splitlines()]

    def scores(self) -> dict[str, Any]:
        newest = json.loads(max(self.out.rglob("results_*.json")).read_text())
        return newest["results"]["v0_gt_aime24"]


def test_a_killed_run_goes_on_where_it_was(checkpoint, tmp_path):
    """In vLLM's usual two processes: the one that survives `kill -9` must not stay either."""
    run = Run(tmp_path, checkpoint)
    running = run.start(VLLM_ENABLE_V1_MULTIPROCESSING="1")
    while not run.lines():
        assert running.poll() is None, run.log.read_text()
        time.sleep(0.05)
    engines = children(running.pid)
    assert engines
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    done = run.lines()
    assert 0 < len(done) < QUERIES
    deadline = time.monotonic() + 20
    while any(map(alive, engines)):
        assert time.monotonic() < deadline, "the engine outlives the run"
        time.sleep(0.1)

    run.finish(VLLM_ENABLE_V1_MULTIPROCESSING="0")
    lines = run.lines()
    assert lines[: len(done)] == done
    queries = [json.loads(line) for line in lines]
    assert len(queries) == len({query["key"] for query in queries}) == QUERIES
    written = sorted([rollout["text"] for rollout in query["rollouts"]] for query in queries)
    assert sorted(sample["resps"][0] for sample in run.samples()) == written
    scores = run.scores()
    tokens = [rollout["tokens"] for query in queries for rollout in query["rollouts"]]
    assert scores["mean_tokens,none"] == pytest.approx(sum(tokens) / len(tokens))
    assert 0 < scores["truncation_rate,none"] <= 1
    assert scores["distinct_rate,none"] > 0.99
    assert scores["k,none"] == 10

    run.finish(CUDA_VISIBLE_DEVICES="", VLLM_TARGET_DEVICE="none such")  # no engine could start
    assert run.lines() == lines
    assert run.scores() == scores


def test_lm_evals_own_backend_still_runs_our_tasks(checkpoint, tmp_path):
    """It asks for the metadata of a distribution called vllm, which vllm-cpu is not."""
    info = tmp_path / "site" / "vllm-0.32.0+cpu.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    run = Run(tmp_path, checkpoint, "vllm")
    run.finish(VLLM_ENABLE_V1_MULTIPROCESSING="0", PYTHONPATH=str(info.parent))
    scores = run.scores()
    assert scores["k,none"] == 10
    assert scores["distinct_rate,none"] > 0.99
    assert "mean_tokens,none" not in scores


def children(parent: int) -> list[int]:
    """Processes below `parent`, but for Python's own resource tracker."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = [line.split(maxsplit=2) for line in listed]
    below = [int(pid) for pid, ppid, args in found if int(ppid) == parent and "tracker" not in args]
    return below + [grandchild for child in below for grandchild in children(child)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"

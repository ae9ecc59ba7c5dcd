"""What `v0-vllm` does before an engine is needed; test_vllm.py runs it on real vLLM."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.registry import model_registry

from gt_models import rows, save_tiny_model, write_jsonl
from v0_bench.errors import V0BenchError
from v0_bench.lm_eval_plugin import register_models
from v0_bench.rollouts.journal import Journal
from v0_bench.rollouts.rollout import Rollout
from v0_bench.rollouts.vllm import RolloutVLLM

OPTIONS = {"until": [], "do_sample": True, "temperature": 1.0, "max_gen_toks": 8}


class EngineWanted(Exception):
    pass


class WithoutEngine(RolloutVLLM):
    @property
    def _llm(self) -> Any:
        raise EngineWanted


class AskedJournal(Journal):
    """Remembers what it was asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[str] = []

    def get(self, key: str) -> list[Rollout] | None:
        self.asked.append(key)
        return super().get(key)


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    return save_tiny_model(tmp_path / "tiny" / "step_0", chat_template=True)


@pytest.fixture
def journal(tmp_path) -> Iterator[AskedJournal]:
    with AskedJournal(tmp_path / "journal.jsonl") as opened:
        yield opened


def copies(prompt: str, count: int = 10, **options: object) -> list[Instance]:
    return [Instance("generate_until", {}, (prompt, OPTIONS | options), 0)] * count


def key(journal: AskedJournal, checkpoint: Path, **arguments: object) -> str:
    """What a model with these arguments asks the journal for."""
    model = WithoutEngine(str(checkpoint), journal=journal, **arguments)
    with pytest.raises(EngineWanted):
        model.generate_until(copies("1 + 1 ="))
    return journal.asked[-1]


def test_lm_eval_knows_our_models_and_keeps_its_own():
    register_models()
    register_models()
    assert model_registry.get("v0-vllm") is RolloutVLLM
    assert {"hf", "vllm", "v0-hf"} <= set(model_registry)


def test_a_finished_run_needs_no_engine(checkpoint, journal):
    wanted = key(journal, checkpoint)
    rollouts = [Rollout(f"answer {n}", "stop", n) for n in range(10)]
    journal.put_many({wanted: rollouts})
    model = WithoutEngine(path=str(checkpoint), journal=journal)
    answers = model.generate_until(copies("1 + 1 ="))
    assert answers == rollouts
    assert [answer.tokens for answer in answers] == list(range(10))


def test_a_journal_serves_only_the_run_it_was_written_by(checkpoint, journal, tmp_path):
    other = shutil.copytree(checkpoint, tmp_path / "other")
    config = json.loads((other / "generation_config.json").read_text())
    (other / "generation_config.json").write_text(json.dumps(config | {"eos_token_id": 2}))
    keys = [
        key(journal, checkpoint),
        key(journal, checkpoint, seed=1),
        key(journal, checkpoint, dtype="float32"),
        key(journal, checkpoint, max_model_len=64),
        key(journal, checkpoint, max_gen_toks=16),
        key(journal, checkpoint, tokenizer=str(other)),
        key(journal, other),
    ]
    assert len(set(keys)) == len(keys)
    same = [
        key(journal, checkpoint, gpu_memory_utilization=0.5, enforce_eager=True),
        key(journal, checkpoint, batch_size=1, max_batch_size=None, device="cuda:0"),
        key(journal, shutil.copytree(checkpoint, tmp_path / "moved")),
    ]
    assert set(same) == {keys[0]}


def test_one_journal_cannot_serve_two_runs(checkpoint, journal):
    with pytest.raises(V0BenchError, match="another run writes to"):
        RolloutVLLM(str(checkpoint), journal=str(journal.path))


def test_log_likelihoods_are_refused(checkpoint):
    model = RolloutVLLM(str(checkpoint))
    for ask in (model.loglikelihood, model.loglikelihood_rolling):
        with pytest.raises(V0BenchError, match="take --model vllm or hf"):
            ask([])


def test_thinking_is_the_templates_business(checkpoint):
    template = "{{ messages[0].content }}{% if enable_thinking is defined %} {{ enable_thinking }}"
    (checkpoint / "chat_template.jinja").write_text(template + "{% endif %}")
    chat = [{"role": "user", "content": "Hi"}]
    assert RolloutVLLM(str(checkpoint)).apply_chat_template(chat) == "Hi"
    model = RolloutVLLM(str(checkpoint), enable_thinking=False)
    assert model.apply_chat_template(chat) == "Hi False"
    assert "enable_thinking" in (model.chat_template(True) or "")


def test_the_first_token_is_not_doubled(checkpoint):
    model = RolloutVLLM(str(checkpoint))
    plain = model.tok_encode("<eos>ab")
    model.tokenizer.bos_token = "<eos>"
    assert model.tok_encode("<eos>ab") == plain
    assert len(plain) == 3


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_weights, "has no weights"),
        (without_config, "has no config.json"),
        (without_tokenizer, "cannot load the tokenizer"),
        (shutil.rmtree, "does not exist"),
    ],
)
def test_an_incomplete_checkpoint_is_told_at_once(checkpoint, damage, message):
    damage(checkpoint)
    with pytest.raises(V0BenchError, match=message):
        RolloutVLLM(str(checkpoint))


def test_a_checkpoint_must_be_named():
    with pytest.raises(V0BenchError, match="pretrained=CHECKPOINT"):
        RolloutVLLM(journal="unused.jsonl")


def without_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def nothing(folder: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_weights, "has no weights"),
        (without_template, "the model's tokenizer has no chat template"),
        pytest.param(
            nothing,
            "pip install 'v0-bench[vllm]'",
            marks=pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is here"),
        ),
    ],
)
def test_the_command_line_ends_with_a_message_alone(
    checkpoint: Path, damage: Callable[[Path], None], message: str, tmp_path: Path
):
    damage(checkpoint)
    problems = write_jsonl(tmp_path / "p.jsonl", rows("integer", 2))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("v0-lm-eval")),
            *("--model", "v0-vllm", "--model_args", f"pretrained={checkpoint}"),
            *("--tasks", "v0_gt_aime24", "--metadata", f"v0_gt_aime24={problems}"),
            "--apply_chat_template",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr

"""One worker in this process: what it samples again, what it does not, and what stops it."""

from dataclasses import replace
from pathlib import Path

import pytest

from gt_models import write_jsonl
from rollout_runs import TASK, journal_rows, save_checkpoint, save_problems
from v0_bench.errors import V0BenchError
from v0_bench.rollouts.checkpoints import Checkpoint
from v0_bench.rollouts.events import Done, Event, Failed, Note, Progress, Ready
from v0_bench.rollouts.settings import Output, Settings
from v0_bench.rollouts.worker import Worker

QUERIES = 4


class Run:
    """Runs checkpoints one after the other and keeps what the worker tells."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder, Output(folder / "out")
        self.checkpoint = Checkpoint("tiny", 3, str(save_checkpoint(folder / "tiny" / "step_3")))
        problems = save_problems(folder, QUERIES)
        self.settings = Settings(
            (TASK,), gen_kwargs={"max_gen_toks": 5}, metadata={TASK: str(problems)}, chunk=2
        )
        self.events: list[Event] = []

    def __call__(self, **changes: object) -> tuple[int, int]:
        """Queries sampled and queries reused in a run with changed settings."""
        self.events.clear()
        worker = Worker(replace(self.settings, **changes), self.output, 1, self.events.append)
        self.result = worker.run(self.checkpoint)
        progress = [event for event in self.events if isinstance(event, Progress)]
        reused = sum(event.reused for event in progress)
        return sum(event.queries for event in progress) - reused, reused

    @property
    def rows(self) -> list[dict[str, object]]:
        return journal_rows(self.output.journal(self.checkpoint.name))


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def test_what_a_change_makes_the_worker_sample_again(run):
    assert run() == (QUERIES, 0)
    assert isinstance(run.result, Done)
    assert run.events[0] == Ready(QUERIES)
    assert run() == (0, QUERIES)  # from the results, without a model
    assert run(limit=2) == (0, 2)  # from the journal
    assert run(gen_kwargs={"max_gen_toks": 4}) == (QUERIES, 0)
    assert run(seed=1) == (QUERIES, 0)
    assert len(run.rows) == 3 * QUERIES
    save_checkpoint(Path(run.checkpoint.path), seed=1)  # trained on
    assert run() == (QUERIES, 0)


def test_the_same_seed_gives_the_same_rollouts(run, tmp_path):
    run()
    first = run.rows
    run.output = Output(tmp_path / "other")
    run()
    assert run.rows == first


def test_a_moved_checkpoint_is_known_by_its_weights(run):
    run()
    moved = run.folder / "elsewhere" / "step_3"
    moved.parent.mkdir()
    Path(run.checkpoint.path).rename(moved)
    run.checkpoint = Checkpoint("tiny", 3, str(moved))
    assert run() == (0, QUERIES)


def test_a_lost_results_file_costs_no_rollout(run):
    run()
    before = run.result.scores
    (results,) = run.output.samples.rglob("results_*.json")
    results.write_text(results.read_text()[:50])
    assert run() == (0, QUERIES)
    assert run.result.scores == before


def test_plain_hf_counts_tokens_from_the_text(run):
    assert run(backend="hf") == (QUERIES, 0)
    rollouts = [rollout for row in run.rows for rollout in row["rollouts"]]
    assert all(rollout["finish_reason"] is None for rollout in rollouts)
    assert all(rollout["tokens"] == len(rollout["text"]) for rollout in rollouts)


def test_text_prompts_need_no_template(run):
    for file in Path(run.checkpoint.path).glob("chat_template*"):
        file.unlink()
    run()
    assert isinstance(run.result, Failed)
    assert "no chat template" in run.result.reason
    assert run(chat_template=False) == (QUERIES, 0)
    notes = [event.text for event in run.events if isinstance(event, Note)]
    assert any("no chat template" in note for note in notes)


def test_options_that_copy_one_rollout_are_refused(run):
    assert run(gen_kwargs={"seed": 3}) == (0, 0)
    assert "same seed" in run.result.reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ("v0_gt_aime42",)}, "unknown task 'v0_gt_aime42': did you mean"),
        ({"backend": "v0-vlm"}, "unknown backend 'v0-vlm': did you mean 'v0-vllm'"),
        ({"tasks": ("v0_gt_gpqa_diamond",)}, "cannot load Idavidrein/gpqa"),
    ],
)
def test_mistakes_that_stop_every_checkpoint(run, changes, message):
    with pytest.raises(V0BenchError, match=message):
        run(**changes)


def test_a_problem_with_an_empty_answer(run):
    row = {"query_id": "a", "text": "How many?", "answer": " "}
    problems = write_jsonl(run.folder / "empty.jsonl", [row])
    with pytest.raises(V0BenchError, match="line 1: answer must be text that is not empty"):
        run(metadata={TASK: str(problems)})

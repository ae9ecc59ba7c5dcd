"""The problems of a task, from a local JSONL file or the Hugging Face hub, checked and cleaned.

Both come in one layout, a row a problem: {query_id, text, answer}, and wrong_answers (a list) for
multiple choice; other fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v0_bench.answers import check
from v0_bench.answers.choice import LETTERS
from v0_bench.errors import V0BenchError
from v0_bench.micro import held_out
from v0_bench.pool.importers.reading import jsonl_rows
from v0_bench.tasks.summary import answer_key


@dataclass(frozen=True)
class Problem:
    """One query with the answer that counts as right.

    `dataset` is set where a task has problems of several kinds that a pool should tell apart.
    """

    query_id: str
    text: str
    answer: str
    wrong_answers: tuple[str, ...] = ()
    dataset: str | None = None


@dataclass(frozen=True)
class Cleaned:
    """Problems whose texts all differ, and what was left out to get there.

    `duplicates` counts rows that repeat the text and answer of an earlier one; `quarantined` holds
    the ids of the rows whose texts come with different answers, a list for each text.
    """

    problems: list[Problem]
    duplicates: int
    quarantined: list[list[str]]


@dataclass(frozen=True)
class HubSource:
    """A data set on the hub, and which of its columns hold the fields of the layout.

    A field may come from several columns; without a column for `query_id`, rows are numbered.
    """

    path: str
    name: str | None
    split: str
    columns: Mapping[str, str | list[str]]


def read_file(path: Path, kind: str) -> list[Problem]:
    """The problems in a JSONL file; raises V0BenchError naming the line that is wrong."""
    return [_problem(row, kind, f"{path}, line {line}") for line, row in jsonl_rows(path)]


def read_hub(source: HubSource, kind: str, task: str) -> list[Problem]:
    """The problems of a data set on the hub; raises V0BenchError where it cannot be had."""
    problems = []
    for number, row in enumerate(_hub_rows(source, task)):
        fields = {
            field: row.get(column)
            if isinstance(column, str)
            else [row.get(part) for part in column]
            for field, column in source.columns.items()
        }
        place = f"{source.path}, row {number}"
        problems.append(_problem({"query_id": f"{task}-{number}"} | fields, kind, place))
    return problems


def micro_problems() -> list[Problem]:
    """The held-out problems of the micro task; the data set of each is its skill family."""
    return [
        Problem(problem.query_id, problem.text, problem.answer, dataset=problem.family)
        for problem in held_out()
    ]


def clean(problems: Sequence[Problem]) -> Cleaned:
    """Drop exact duplicates and quarantine every text that has conflicting answers.

    Texts are compared without outer blanks, answers as the numbers or canonical texts they are.
    """
    by_text: dict[str, list[Problem]] = {}
    for problem in problems:
        by_text.setdefault(problem.text.strip(), []).append(problem)
    kept: list[Problem] = []
    quarantined: list[list[str]] = []
    for same in by_text.values():
        if len({answer_key(problem.answer) for problem in same}) == 1:
            kept.append(same[0])
        else:
            quarantined.append([problem.query_id for problem in same])
    left_out = sum(len(ids) for ids in quarantined)
    _check_ids(kept)
    return Cleaned(kept, len(problems) - len(kept) - left_out, quarantined)


def _check_ids(problems: Iterable[Problem]) -> None:
    seen: set[str] = set()
    for problem in problems:
        if problem.query_id in seen:
            raise V0BenchError(
                f"two different problems have the query_id {problem.query_id!r}: give each its own"
            )
        seen.add(problem.query_id)


def _problem(row: Mapping[str, Any], kind: str, place: str) -> Problem:
    """The checked problem in a row; messages name fields, never the text of a problem."""
    query_id, text = (_text(row, field, place) for field in ("query_id", "text"))
    answer = _text(row, "answer", place)
    wrong = row.get("wrong_answers", ()) if kind == "choice" else ()
    if kind == "choice":
        _check_options(answer, wrong, place)
    else:
        try:
            check("", answer, kind)
        except V0BenchError as error:
            raise V0BenchError(f"{place}: {error}") from error
    return Problem(query_id, text, answer, tuple(option.strip() for option in wrong))


def _text(row: Mapping[str, Any], field: str, place: str) -> str:
    value = row.get(field)
    if isinstance(value, list):  # an answer of several parts
        value = ", ".join(str(part) for part in value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise V0BenchError(
            f"{place}: {field} must be text that is not empty; mend the row or leave it out"
        )
    return value.strip()


def _check_options(answer: str, wrong: object, place: str) -> None:
    if not isinstance(wrong, list) or not all(isinstance(option, str) for option in wrong):
        raise V0BenchError(f"{place}: wrong_answers must be a list of texts")
    options = {option.strip() for option in (answer, *wrong)}
    if "" in options or not 1 < len(options) == len(wrong) + 1 <= len(LETTERS):
        raise V0BenchError(
            f"{place}: a problem needs 1 to {len(LETTERS) - 1} wrong_answers that differ from "
            "the answer and from one another"
        )


def _hub_rows(source: HubSource, task: str) -> Iterable[Mapping[str, Any]]:
    import datasets

    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(
            source.path, source.name, split=source.split
        )
        return rows
    except Exception as error:  # offline, gated, moved: each library layer has its own types
        message = str(error).lower()
        if "gated" in message or "authenticated" in message:
            advice = (
                f"it is gated: accept its terms at https://huggingface.co/datasets/{source.path}, "
                "then log in with `hf auth login` or set HF_TOKEN"
            )
        else:
            advice = f"the hub does not hand it out ({type(error).__name__}: {error})"
        raise V0BenchError(
            f"{task} cannot load {source.path}: {advice}. Or give the problems in a local file: "
            f"--metadata {task}=FILE.jsonl (layout in docs/ground_truth.md)"
        ) from error

"""Problems from files and the hub: layout, cleaning, messages; the fixed order of options."""

import random
from collections import Counter

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gt_models import rows, write_jsonl
from v0_bench.errors import V0BenchError
from v0_bench.tasks.choices import option_order, with_options
from v0_bench.tasks.problems import HubSource, Problem, clean, read_file, read_hub

SECRET = "Which zephyr hums at dusk?"
GOOD = {"query_id": "q", "text": SECRET, "answer": "7"}


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("math", {"answer": ""}, "answer must be text that is not empty"),
        ("math", {"answer": None}, "answer must be text"),
        ("math", {"answer": "  $ $ "}, "gold answer is empty"),
        ("math", {"answer": True}, "answer must be text"),
        ("math", {"text": " "}, "text must be text"),
        ("math", {"query_id": ""}, "query_id must be text"),
        ("integer", {"answer": "1/2"}, "needs an integer gold"),
        ("choice", {}, "wrong_answers must be a list"),
        ("choice", {"wrong_answers": "8"}, "must be a list"),
        ("choice", {"wrong_answers": ["8", "8"]}, "differ from"),
        ("choice", {"wrong_answers": ["7"]}, "differ from"),
        ("choice", {"wrong_answers": [str(n) for n in range(10, 20)]}, "1 to 9"),
    ],
)
def test_a_bad_row_is_named_by_line_without_its_text(tmp_path, kind, change, message):
    good = GOOD | {"query_id": "good", "wrong_answers": ["8"]}
    path = write_jsonl(tmp_path / "p.jsonl", [good, GOOD | change])
    with pytest.raises(V0BenchError, match=message) as raised:
        read_file(path, kind)
    assert f"{path}, line 2: " in str(raised.value)
    assert "zephyr" not in str(raised.value)


def test_a_cut_file_is_told(tmp_path):
    path = write_jsonl(tmp_path / "p.jsonl", [GOOD])
    path.write_text(path.read_text() + '{"query_id": "r", "te')
    with pytest.raises(V0BenchError, match="line 2: not JSON, or cut off"):
        read_file(path, "math")


def test_integers_and_lists_are_answers_too(tmp_path):
    path = write_jsonl(tmp_path / "p.jsonl", [GOOD | {"answer": 7}, GOOD | {"answer": ["1", "2"]}])
    assert [problem.answer for problem in read_file(path, "math")] == ["7", "1, 2"]


def test_duplicates_are_dropped_and_conflicts_quarantined():
    problems = [
        Problem("a", "How far?", "033"),
        Problem("b", " How far?\n", "33"),
        Problem("c", "How near?", "1"),
        Problem("d", "How near?", "2"),
        Problem("e", "How near?", "1"),
        Problem("f", "How odd?", "3"),
    ]
    cleaned = clean(problems)
    assert [problem.query_id for problem in cleaned.problems] == ["a", "f"]
    assert cleaned.duplicates == 1
    assert cleaned.quarantined == [["c", "d", "e"]]


def test_one_id_for_two_problems_is_refused():
    with pytest.raises(V0BenchError, match="query_id 'a'"):
        clean([Problem("a", "x?", "1"), Problem("a", "y?", "1")])


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("12")), max_size=12))
def test_cleaning_accounts_for_every_row(pairs):
    problems = [Problem(f"{i}", text, answer) for i, (text, answer) in enumerate(pairs)]
    cleaned = clean(problems)
    left_out = cleaned.duplicates + sum(map(len, cleaned.quarantined))
    assert len(cleaned.problems) + left_out == len(problems)
    answers: dict[str, set[str]] = {}
    for text, answer in pairs:
        answers.setdefault(text, set()).add(answer)
    assert {p.text for p in cleaned.problems} == {t for t, a in answers.items() if len(a) == 1}


def test_the_real_dapo_file(shared):
    problems = read_file(shared / "problem_sets" / "dapo_math_17k.jsonl", "integer")
    cleaned = clean(problems)
    assert (len(problems), len(cleaned.problems)) == (17_917, 17_243)
    assert len(cleaned.quarantined) == 12
    assert cleaned.duplicates == 17_917 - 17_243 - sum(map(len, cleaned.quarantined))


ORDERS = [[1, 3, 2, 0], [2, 3, 1, 0], [0, 1, 2, 3]]


def test_the_order_of_options_is_fixed_for_ever():
    assert [option_order(name, 4) for name in ("rec1", "rec2", "rec3")] == ORDERS
    state = random.getstate()
    random.seed(5)
    assert option_order("rec1", 4) == ORDERS[0]
    random.setstate(state)


def test_right_answers_are_spread_over_the_letters():
    letters = Counter(with_options(f"id{n}", "?", "a", "bcd")[1] for n in range(4000))
    assert sorted(letters) == list("ABCD")
    assert all(abs(count - 1000) < 120 for count in letters.values())


def test_the_letter_points_at_the_right_option():
    for n in range(50):
        text, letter = with_options(f"id{n}", "Pick one.", "right", ["w1", "w2", "w3"])
        assert f"\n{letter}) right" in text
        assert text.startswith("Pick one.\n\nA) ")


GPQA = HubSource(
    "some/where",
    None,
    "train",
    {
        "query_id": "Record ID",
        "text": "Question",
        "answer": "Correct Answer",
        "wrong_answers": ["Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"],
    },
)


def hub_row(number: int) -> dict[str, str]:
    wrong = {f"Incorrect Answer {n}": f" {n + 10}" for n in (1, 2, 3)}
    row = {"Record ID": f"rec{number}", "Question": f"{SECRET} {number}", "Correct Answer": "7\n"}
    return row | wrong


def test_hub_columns_become_the_layout(monkeypatch):
    table = datasets.Dataset.from_list([hub_row(1), hub_row(2)])
    monkeypatch.setattr(datasets, "load_dataset", lambda path, name, split: table)
    first, _ = read_hub(GPQA, "choice", "v0_gt_gpqa_diamond")
    assert first == Problem("rec1", f"{SECRET} 1", "7", ("11", "12", "13"))
    numbered = HubSource("some/where", None, "train", {"text": "Question", "answer": "Record ID"})
    assert [p.query_id for p in read_hub(numbered, "math", "t")] == ["t-0", "t-1"]


def test_a_gated_data_set_says_how_to_get_access(monkeypatch):
    def refuse(path, name, split):
        raise datasets.exceptions.DatasetNotFoundError(
            f"Dataset '{path}' is a gated dataset on the Hub. You must be authenticated to access."
        )

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(V0BenchError) as raised:
        read_hub(GPQA, "choice", "v0_gt_gpqa_diamond")
    for part in (
        "https://huggingface.co/datasets/some/where",
        "hf auth login",
        "HF_TOKEN",
        "--metadata v0_gt_gpqa_diamond=FILE.jsonl",
    ):
        assert part in str(raised.value)


def test_rows_for_the_tests_are_good(tmp_path):
    for kind in ("integer", "math", "choice"):
        path = write_jsonl(tmp_path / f"{kind}.jsonl", rows(kind, 3))
        assert len(clean(read_file(path, kind)).problems) == 3

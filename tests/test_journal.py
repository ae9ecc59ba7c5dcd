"""The journal of finished queries: what a kill at any moment leaves, and what it takes up again."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.journal import Journal, journal_key
from v0_bench.rollouts.rollout import Rollout

# writes batches of 3 queries for ever; each rollout is some 40 kB, so that a kill hits a write
WRITER = """
import itertools, sys
from pathlib import Path
from v0_bench.rollouts.journal import Journal
from v0_bench.rollouts.rollout import Rollout
journal = Journal(Path(sys.argv[1]))
print("open", flush=True)
for first in itertools.count(len(journal), 3):
    batch = range(first, first + 3)
    journal.put_many(
        {f"q{n}": [Rollout(f"{n} {draw} " * 5000, "stop", n) for draw in range(10)] for n in batch}
    )
    print(first + 3, flush=True)
"""

rollouts = st.lists(
    st.builds(
        Rollout,
        st.text(alphabet=st.characters()),  # lone surrogates and line ends among them
        st.sampled_from([None, "stop", "length"]),
        st.none() | st.integers(0, 10**6),
    ),
    min_size=1,
    max_size=3,
)
contents = st.dictionaries(st.text(max_size=5), rollouts, min_size=1, max_size=5)


def told(found: list[Rollout]) -> list[tuple[str, str | None, int | None]]:
    return [(str(rollout), rollout.finish_reason, rollout.tokens) for rollout in found]


def writer(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )


@given(queries=contents, data=st.data())
@settings(deadline=None, max_examples=50)
def test_what_is_put_is_found_again(tmp_path_factory, queries, data):
    path = tmp_path_factory.mktemp("journal") / "new folder" / "j.jsonl"
    first = data.draw(st.integers(0, len(queries)))
    with Journal(path) as journal:
        journal.put_many(dict(list(queries.items())[:first]))
    with Journal(path) as journal:
        assert len(journal) == first
        journal.put_many(dict(list(queries.items())[first:]))
    with Journal(path) as journal:
        assert len(journal) == len(queries)
        for key, drawn in queries.items():
            assert told(journal.get(key) or []) == told(drawn)
        assert journal.get("none of these") is None


@given(queries=contents, data=st.data())
@settings(deadline=None, max_examples=50)
def test_a_cut_at_any_byte_loses_only_the_line_it_hits(tmp_path_factory, queries, data):
    path = tmp_path_factory.mktemp("journal") / "j.jsonl"
    with Journal(path) as journal:
        journal.put_many(queries)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = list(queries)[: whole[:cut].count(b"\n")]
    with Journal(path) as journal:
        assert len(journal) == len(kept)
        assert all(told(journal.get(key) or []) == told(queries[key]) for key in kept)
        journal.put_many({key: queries[key] for key in queries if key not in kept})
    assert path.read_bytes() == whole


def test_a_cut_is_told(tmp_path, caplog):
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.put_many({"a": [Rollout("1")], "b": [Rollout("2")]})
    path.write_bytes(path.read_bytes()[:-3])
    with caplog.at_level(logging.WARNING), Journal(path):
        pass
    assert f"{path}: line 2 was cut off" in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        b"\0\0\0\n",
        b"\xff\xfe\n",
        b"\n",
        b"[]\n",
        b'{"key": "a"}\n',
        b'{"key": 1, "rollouts": []}\n',
        b'{"key": "a", "rollouts": [{"text": 1, "finish_reason": null, "tokens": 1}]}\n',
        b'{"key": "a", "rollouts": [{"text": "", "finish_reason": null, "tokens": "1"}]}\n',
    ],
)
def test_a_line_damaged_otherwise_is_named_and_left_alone(tmp_path, line):
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.put_many({"a": [Rollout("1")]})
    path.write_bytes(path.read_bytes() + line + path.read_bytes())
    before = path.read_bytes()
    for _ in range(2):  # the lock is free again after the first
        with pytest.raises(V0BenchError, match=r"j\.jsonl, line 2 is damaged: remove that line"):
            Journal(path)
    assert path.read_bytes() == before


def test_two_runs_cannot_write_to_one_journal(tmp_path):
    path = tmp_path / "j.jsonl"
    running = writer(path)
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "open\n"
        with pytest.raises(V0BenchError, match=r"another run writes to .*j\.jsonl"):
            Journal(path)
    finally:
        running.kill()
        running.communicate()
    Journal(path).close()  # a killed run holds nothing


def test_kill_9_while_writing_loses_no_finished_query(tmp_path):
    path = tmp_path / "j.jsonl"
    done = 0
    for round_ in range(5):
        running = writer(path)
        assert running.stdout is not None
        assert running.stdout.readline() == "open\n"
        running.stdout.readline()
        time.sleep(0.01 * round_)
        os.kill(running.pid, signal.SIGKILL)
        rest = running.communicate()[0].split()
        done = int(rest[-1]) if rest else done + 3
        with Journal(path) as journal:
            assert len(journal) >= done
            for number in range(len(journal)):
                assert told(journal.get(f"q{number}") or []) == [
                    (f"{number} {draw} " * 5000, "stop", number) for draw in range(10)
                ]
            done = len(journal)
    keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert keys == [f"q{number}" for number in range(done)]


def test_a_disk_that_takes_no_more_is_told_and_costs_one_line(tmp_path):
    path = tmp_path / "j.jsonl"
    fill = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)); sys.argv[0] = ''; "
    )
    done = subprocess.run(
        [sys.executable, "-c", fill + f"exec({WRITER!r})", str(path)],
        capture_output=True,
        text=True,
    )
    assert f"V0BenchError: cannot write {path}: File too large" in done.stderr
    assert path.stat().st_size <= 300_000
    with Journal(path) as journal:
        assert len(journal) >= int(done.stdout.split()[-1].replace("open", "0"))


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(V0BenchError, match=r"cannot write .*j\.jsonl"):
        Journal(tmp_path / "file" / "j.jsonl")


def test_whatever_decides_the_samples_gives_another_key():
    options = {"temperature": 1.0, "top_p": 1.0, "until": [], "max_gen_toks": 8}
    keys = [
        journal_key("What is 1 + 1?", options, 10, "model a"),
        journal_key("What is 1 + 1? ", options, 10, "model a"),
        journal_key("What is 1 + 1?", options, 9, "model a"),
        journal_key("What is 1 + 1?", options, 10, "model b"),
        journal_key("What is 1 + 1?", options | {"temperature": 0.6}, 10, "model a"),
        journal_key("What is 1 + 1?", options | {"max_gen_toks": 9}, 10, "model a"),
        journal_key("What is 1 + 1?", options | {"until": ["\n"]}, 10, "model a"),
        journal_key("What is 1 + 1?", options | {"top_k": 5}, 10, "model a"),
    ]
    assert all(a != b for n, a in enumerate(keys) for b in keys[n + 1 :])
    assert all(len(key) == 64 for key in keys)
    turned = dict(reversed(options.items()))
    assert journal_key("What is 1 + 1?", turned, 10, "model a") == keys[0]


def test_keys_do_not_depend_on_the_process():
    code = "from v0_bench.rollouts.journal import journal_key; print(journal_key('q', {}, 10, 'm'))"
    keys = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert keys == {journal_key("q", {}, 10, "m")}

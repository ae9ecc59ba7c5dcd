"""The worker processes: threads, forks, spawns, kills, wrong versions, nothing left behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from v0_bench.answers import check, processes
from v0_bench.answers.processes import COMPARE_SECONDS, WORKERS, Worker, WorkerLost, WorkerPool
from v0_bench.errors import V0BenchError

ROOT = Path(__file__).resolve().parents[1]
RIGHT = (r"\boxed{\sqrt{20}}", r"2\sqrt{5}")
WRONG = (r"\boxed{\sqrt{21}}", r"2\sqrt{5}")
HANGS = ("9^{9^{9}}", "70")


def verdicts(_: int = 0) -> tuple[bool, bool]:
    return check(*RIGHT).correct, check(*WRONG).correct


def running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_many_threads_get_their_own_verdicts():
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(verdicts, range(64)))
    assert found == [(True, False)] * 64


def test_a_hang_in_one_thread_does_not_stop_the_others():
    check(*RIGHT)
    hung: list[str] = []
    thread = threading.Thread(target=lambda: hung.append(check(r"\boxed{9^{9^{9}}}", "70").reason))
    thread.start()
    if WORKERS > 1:
        start = time.monotonic()
        assert verdicts() == (True, False)
        assert time.monotonic() - start < COMPARE_SECONDS
    thread.join()
    assert hung == ["timed out"]


def test_the_workers_are_persistent():
    pool = WorkerPool()
    for _ in range(20):
        pool.compare("x+1", "1+x")
    assert len(pool._all) == 1
    (worker,) = pool._all
    pool.close()
    assert not running(worker.process.pid)


def test_a_worker_killed_while_idle_is_replaced():
    pool = WorkerPool()
    assert pool.compare("x+1", "1+x") == {"equal": True}
    (worker,) = pool._all
    os.kill(worker.process.pid, signal.SIGKILL)
    assert pool.compare("x+1", "2+x") == {"equal": False}
    assert worker.process.returncode == -signal.SIGKILL  # reaped
    pool.close()


def test_a_stopped_worker_is_killed_by_its_owner():
    worker = Worker()
    worker.compare("x+1", "1+x")
    os.kill(worker.process.pid, signal.SIGSTOP)
    start = time.monotonic()
    with pytest.raises(WorkerLost, match="timed out"):
        worker.compare("x+1", "1+x")
    assert time.monotonic() - start < 5
    assert not running(worker.process.pid)


def test_a_worker_ends_itself_though_its_owner_is_gone():
    code = (
        "import os, sys\n"
        "from v0_bench.answers.processes import Worker\n"
        "worker = Worker()\n"
        "worker.compare('x+1', '1+x')\n"
        'worker.process.stdin.write(b\'["70", "9^{9^{9}}"]\\n\')\n'
        "print(worker.process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    pid = int(done.stdout)
    end = time.monotonic() + COMPARE_SECONDS + 3
    while running(pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert not running(pid)


def test_no_worker_outlives_a_normal_end():
    code = (
        "from v0_bench.answers import check, processes\n"
        r"assert check(r'\boxed{\sqrt{20}}', r'2\sqrt{5}').correct"
        "\n"
        "print(*[worker.process.pid for worker in processes._pool._all])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stderr == b""
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    assert not any(running(pid) for pid in pids)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_children(method):
    assert verdicts() == (True, False)  # the parent's workers exist before the fork
    with multiprocessing.get_context(method).Pool(2) as children:  # daemonic children
        assert children.map(verdicts, range(4)) == [(True, False)] * 4
    assert verdicts() == (True, False)


def test_a_plain_fork_leaves_the_parents_workers_alone():
    assert verdicts() == (True, False)
    mine = {worker.process.pid for worker in processes._pool._all}
    child = os.fork()
    if child == 0:
        os._exit(0 if verdicts() == (True, False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert verdicts() == (True, False)
    assert {worker.process.pid for worker in processes._pool._all} == mine


def test_an_interrupted_check_does_not_leak_its_reply(monkeypatch):
    pool = WorkerPool()
    pool.compare("x+1", "1+x")

    def interrupt(self: Worker, seconds: float) -> dict[str, object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "_reply", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.compare("x+1", "1+x")
    assert pool.compare("x+1", "2+x") == {"equal": False}
    pool.close()


def test_another_math_verify_is_refused(monkeypatch):
    monkeypatch.setattr(processes, "MATH_VERIFY_VERSION", "0.0.1")
    worker = Worker()
    with pytest.raises(V0BenchError, match=r"pip install math-verify==0\.0\.1"):
        worker.compare("x+1", "1+x")
    assert not running(worker.process.pid)


def test_a_worker_that_cannot_start_is_explained(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(V0BenchError, match="pip install math-verify"):
        Worker().compare("x+1", "1+x")


def test_files_in_the_working_directory_do_not_shadow_libraries(tmp_path):
    (tmp_path / "sympy.py").write_text("raise SystemExit('shadowed')")
    code = (
        "import sys; sys.path[:] = [path for path in sys.path if path]\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from v0_bench.answers import check\n"
        r"assert check(r'\boxed{\sqrt{20}}', r'2\sqrt{5}').correct"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_importing_the_checker_loads_no_algebra():
    code = (
        "import sys, v0_bench.answers\n"
        "heavy = {'sympy', 'torch', 'numpy', 'math_verify', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

"""lm-eval finds the tasks: from a wheel and an editable install, by the hook and by v0-lm-eval.

Each install goes into a small environment that borrows this one's packages.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

import pytest

from conftest import ROOT
from gt_models import rows, save_tiny_model, write_jsonl
from v0_bench.pool import Pool

SOURCES = ("v0_bench", "baselines", "tasks", "README.md", "LICENSE", "pyproject.toml")
LISTED = """
from lm_eval.tasks import TaskManager
print(*(n for n in TaskManager(include_defaults=False).all_tasks if n.startswith("v0_gt")))
"""
NAMES = (
    "v0_gt v0_gt_aime24 v0_gt_aime25 v0_gt_dapo_math v0_gt_gpqa_diamond v0_gt_math500 "
    "v0_gt_micro v0_gt_olympiad_bench"
)


class Environment:
    """A small environment with an install of this package."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / "bin"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        borrowed = [path for path in sys.path if path.endswith("site-packages")]
        (self.packages / "zz_borrowed.pth").write_text("\n".join(borrowed))

    def pip(self, *arguments: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), *arguments]
        subprocess.run(pip, check=True, capture_output=True, text=True)

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs Python with `command` outside the repository."""
        variables = os.environ | {"OMP_NUM_THREADS": "1"} | environment
        return subprocess.run(
            [str(self.bin / "python"), *command],
            cwd=self.bin.parent,
            env=variables,
            capture_output=True,
            text=True,
        )


def copied_sources(folder: Path) -> Path:
    folder.mkdir()
    for name in (*SOURCES, "setup.py", "v0_bench_hook.py", "v0_bench_hook.pth"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(source, folder / name)
    return folder


def installed(folder: Path, *options: str) -> Environment:
    try:
        found = version("setuptools")
    except PackageNotFoundError:
        found = "0"
    if int(found.partition(".")[0]) < 77:
        pytest.skip(f"building without a network needs setuptools >= 77 here, found {found}")
    made = Environment(folder / "environment")
    sources = copied_sources(folder / "sources")
    made.pip("install", "--no-deps", "--no-build-isolation", *options, str(sources))
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Environment:
    return installed(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def editable(tmp_path_factory) -> Environment:
    return installed(tmp_path_factory.mktemp("editable"), "--editable")


@pytest.fixture(params=["wheel", "editable"])
def either(request) -> Environment:
    return request.getfixturevalue(request.param)


@pytest.fixture
def problems(tmp_path) -> str:
    return f"v0_gt_aime24={write_jsonl(tmp_path / 'p.jsonl', rows('integer', 3))}"


def test_a_task_manager_lists_our_tasks(either):
    done = either.run("-c", LISTED)
    assert done.stdout.strip() == NAMES
    assert done.stderr == ""


def test_the_hook_is_recorded_and_goes_with_the_package(tmp_path):
    made = installed(tmp_path, "--editable")
    (record,) = made.packages.glob("v0_bench-*.dist-info/RECORD")
    assert "v0_bench_hook.pth,sha256=" in record.read_text()
    made.pip("uninstall", "--yes", "v0-bench")
    assert not list(made.packages.glob("v0_bench*"))
    assert made.run("-c", "pass").stderr == ""


def test_nothing_generic_becomes_importable(wheel):
    done = wheel.run("-c", "import v0_bench.tasks; import tasks")
    assert "No module named 'tasks'" in done.stderr


def test_one_variable_switches_the_hook_off(either):
    assert either.run("-c", LISTED, V0_BENCH_NO_HOOK="1").stdout.strip() == ""


def test_a_failing_hook_is_told_and_harms_nothing(wheel, tmp_path):
    (tmp_path / "v0_bench").mkdir()
    (tmp_path / "v0_bench" / "__init__.py").write_text("raise RuntimeError('broken on purpose')")
    done = wheel.run("-c", LISTED + "print('still works')", PYTHONPATH=str(tmp_path))
    assert done.stdout.split("\n")[1] == "still works"
    assert "its tasks are not known to lm-eval" in done.stderr
    assert "broken on purpose" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_lm_eval_of_another_shape_is_told():
    from v0_bench.errors import V0BenchError
    from v0_bench.lm_eval_plugin import install

    class TaskManager:
        def __init__(self, folders: list[str]) -> None:
            self.folders = folders

    with pytest.raises(V0BenchError, match="another way"):
        install(TaskManager)
    assert TaskManager(["a"]).folders == ["a"]


def test_the_hook_costs_under_5_ms_and_loads_nothing(wheel):
    code = (
        "import os, sys, time; before = set(sys.modules); t = time.perf_counter(); "
        "import v0_bench_hook; print(time.perf_counter() - t, *(set(sys.modules) - before))"
    )
    runs = [wheel.run("-S", "-c", f"import sys; sys.path.append({str(wheel.packages)!r}); {code}")]
    runs += [wheel.run(*runs[0].args[1:]) for _ in range(4)]
    seconds, *modules = min(runs, key=lambda run: float(run.stdout.split()[0])).stdout.split()
    assert float(seconds) < 0.005
    assert modules == ["v0_bench_hook"]


def test_the_users_own_folder_wins_and_ours_is_not_read_twice(wheel, tmp_path):
    (tmp_path / "own.yaml").write_text("task: v0_gt_aime24\ndataset_path: mine\n")
    code = (
        "from lm_eval.tasks import TaskManager; from v0_bench.tasks import FOLDER; "
        f"made = TaskManager(include_path=[FOLDER, {str(tmp_path)!r}], include_defaults=False); "
        "print(made.task_index['v0_gt_aime24'].yaml_path)"
    )
    done = wheel.run("-c", code)
    assert done.stdout.strip() == str(tmp_path / "own.yaml")
    assert done.stderr.count("overrides") == 1


def lm_eval_to_pool(made: Environment, launcher: list[str], problems: str, out: Path) -> Pool:
    done = made.run(
        *launcher,
        *("--model", "dummy", "--model_args", "path=demo/step_3", "--tasks", "v0_gt_aime24"),
        *("--metadata", problems, "--log_samples", "--output_path", str(out / "out")),
    )
    assert done.returncode == 0, done.stderr
    assert "|avg@k" in done.stdout
    command = ["pool", "import", "--format", "lm-eval", str(out / "out"), str(out / "pool")]
    imported = made.run(str(made.bin / "v0-bench"), *command)
    assert imported.returncode == 0, imported.stderr
    return Pool.load(out / "pool")


def test_v0_lm_eval_needs_no_hook(either, problems, tmp_path):
    launcher = [str(either.bin / "v0-lm-eval")]
    pool = lm_eval_to_pool(either, launcher, problems, tmp_path)
    assert pool.outcomes[["policy", "step", "n_rollouts"]].drop_duplicates().values.tolist() == [
        ["demo", 3, 10]
    ]
    assert len(pool.queries) == 3


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["command", "module"])
def test_plain_lm_eval_runs_our_tasks(either, launcher, problems, tmp_path):
    (command,) = (file for file in files("lm_eval") or () if file.match("bin/lm_eval"))
    start = [str(command.locate())] if launcher == "command" else ["-m", "lm_eval"]
    pool = lm_eval_to_pool(either, start, problems, tmp_path)
    assert set(pool.outcomes["n_rollouts"]) == {10}


@pytest.mark.slow
def test_plain_lm_eval_lists_and_validates_our_tasks(editable, problems):
    listed = editable.run("-m", "lm_eval", "ls", "tasks")
    assert all(name in listed.stdout for name in NAMES.split())
    valid = editable.run("-m", "lm_eval", "validate", "--tasks", "v0_gt_aime24")
    assert "v0_gt_aime24" in valid.stdout + valid.stderr
    assert valid.returncode == 0


def test_our_own_mistakes_end_without_traceback(either):
    done = either.run(
        str(either.bin / "v0-lm-eval"),
        *("--model", "dummy", "--tasks", "v0_gt_aime24", "--metadata", "v0_gt_aime24=absent.jsonl"),
    )
    assert done.returncode == 2
    assert "error: cannot read absent.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


def with_tiny_model(made: Environment, model: Path, problems: str, out: Path):
    return made.run(
        str(made.bin / "v0-lm-eval"),
        *("--model", "hf", "--model_args", f"pretrained={model}", "--device", "cpu"),
        *("--tasks", "v0_gt_aime24", "--metadata", problems, "--apply_chat_template"),
        *("--gen_kwargs", "max_gen_toks=8", "--batch_size", "10", "--seed", "7"),
        *("--log_samples", "--output_path", str(out)),
    )


def test_a_hugging_face_model_with_a_chat_template(editable, problems, tmp_path):
    model = save_tiny_model(tmp_path / "tiny", chat_template=True)
    done = with_tiny_model(editable, model, problems, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    for line in samples.read_text().splitlines():
        sample = json.loads(line)
        prompt, sampling = sample["arguments"]["gen_args_0"].values()
        assert prompt.startswith("[user] How many legs")
        assert prompt.endswith("[assistant] ")
        assert sampling["max_gen_toks"] == 8
        assert len(set(sample["resps"][0])) == 10
        assert sample["distinct_rate"] == 1.0


def test_a_tokenizer_without_a_chat_template_is_told(editable, problems, tmp_path):
    model = save_tiny_model(tmp_path / "tiny", chat_template=False)
    done = with_tiny_model(editable, model, problems, tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert "error: the model's tokenizer has no chat template" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tasks", "v0_gt_aime24,v0_gt"], True),
        (["run", "-t", "v0_gt", "v0_gt_aime25", "--limit", "3"], True),
        (["--tasks=v0_gt,gsm8k"], False),
        (["--tasks", "v0_gt", "--tasks", "gsm8k"], False),
        (["--tasks", "v0_gt", "--model_args", "pretrained=gsm8k"], True),
        (["ls", "tasks"], False),
        ([], False),
    ],
)
def test_the_index_is_skipped_only_where_all_tasks_are_ours(arguments, expected):
    from v0_bench.cli.lm_eval import only_our_tasks

    assert only_our_tasks(arguments) is expected

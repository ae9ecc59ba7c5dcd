"""Which checkpoints a folder or a plan holds, and what their files tell."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.checkpoints import (
    check_distinct,
    find_checkpoints,
    fingerprint,
    params_b,
)
from v0_bench.rollouts.plan import make_settings, read_plan
from v0_bench.rollouts.to_pool import Facts


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def names(path: Path) -> list[str]:
    return [checkpoint.name for checkpoint in find_checkpoints(path)]


def test_steps_are_in_order_of_training(tmp_path):
    for step in (100, 20, 3):
        model(tmp_path / "run" / f"step_{step}")
    (tmp_path / "run" / "logs").mkdir()
    assert names(tmp_path / "run") == ["run/step_3", "run/step_20", "run/step_100"]


@pytest.mark.parametrize("folder", ["step_7", "checkpoint-7", "global_step_7"])
def test_common_names_of_steps(tmp_path, folder):
    model(tmp_path / "run" / folder)
    assert names(tmp_path / "run") == names(tmp_path / "run" / folder) == ["run/step_7"]


def test_policies_and_finished_models_side_by_side(tmp_path):
    for folder in ("b/step_1", "a/step_2", "a/step_1", "finished"):
        model(tmp_path / folder)
    (tmp_path / "notes").mkdir()
    assert names(tmp_path) == ["a/step_1", "a/step_2", "b/step_1", "finished"]


def test_a_step_without_files_is_not_overlooked(tmp_path):
    (tmp_path / "run" / "step_4").mkdir(parents=True)
    assert names(tmp_path / "run") == ["run/step_4"]


def test_nothing_to_sample(tmp_path):
    with pytest.raises(V0BenchError, match=r"holds no checkpoint"):
        find_checkpoints(tmp_path)
    with pytest.raises(V0BenchError, match="does not exist"):
        find_checkpoints(tmp_path / "none")


def test_one_step_twice(tmp_path):
    for folder in ("step_5", "checkpoint-5"):
        model(tmp_path / "run" / folder)
    with pytest.raises(V0BenchError, match=r"would both be run/step_5"):
        check_distinct(find_checkpoints(tmp_path / "run"))


def test_the_fingerprint_sees_one_changed_byte_and_not_the_place(tmp_path):
    for name in ("one", "two"):
        save_file({"w": np.zeros((64, 64))}, model(tmp_path / name) / "model.safetensors")
    assert fingerprint(str(tmp_path / "one")) == fingerprint(str(tmp_path / "two"))
    file = tmp_path / "two" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert fingerprint(str(tmp_path / "one")) != fingerprint(str(tmp_path / "two"))


def test_the_fingerprint_sees_that_all_of_a_large_file_changed(tmp_path):
    file = model(tmp_path / "run") / "model.safetensors"
    seen = set()
    for value in (0, 1):
        save_file({"w": np.full((2000, 2000), value, dtype="float32")}, file)
        seen.add(fingerprint(str(tmp_path / "run")))
    assert len(seen) == 2


def test_parameters_are_counted_over_all_shards(tmp_path):
    folder = model(tmp_path / "run")
    save_file({"a": np.zeros((3, 5)), "b": np.zeros(7)}, folder / "model-1.safetensors")
    save_file({"c": np.zeros((2, 2, 2), "float16")}, folder / "model-2.safetensors")
    assert params_b(str(folder)) == (15 + 7 + 8) / 1e9
    assert params_b(str(model(tmp_path / "none"))) is None
    (folder / "model-1.safetensors").write_bytes(b"\xff" * 50)
    assert params_b(str(folder)) is None


PLAN = """
policies:
  - {name: small, path: runs/a, params_b: 0.5, price_in: 0.1, price_out: 0.4}
  - {path: [runs/b/step_1, runs/b/step_2]}
  - {path: organisation/model}
tasks: [v0_gt_aime24]
options: {limit: 5, gen_kwargs: {temperature: 0.6}, batch_size: 8}
"""


def test_a_plan_names_policies_prices_and_options(tmp_path):
    for folder in ("runs/a/step_1", "runs/b/step_1", "runs/b/step_2", "runs/b/step_3"):
        model(tmp_path / folder)
    (tmp_path / "plan.yaml").write_text(PLAN)
    plan = read_plan(tmp_path / "plan.yaml")
    assert [checkpoint.name for checkpoint in plan.checkpoints] == [
        "small/step_1",
        "b/step_1",
        "b/step_2",
        "organisation__model",
    ]
    assert plan.checkpoints[-1].path == "organisation/model"
    assert plan.facts["small"] == Facts(0.5, 0.1, 0.4)
    settings = make_settings(plan.options)
    assert settings.tasks == ("v0_gt_aime24",)
    assert (settings.limit, settings.batch_size) == (5, "8")
    assert settings.gen_kwargs == {"temperature": 0.6}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policies: [", "is not YAML"),
        ("- a", "a mapping was expected"),
        ("policies: []", "policies must be a list"),
        ("polices: [{path: runs}]", "did you mean 'policies'"),
        ("policies: [{path: runs, prize_in: 1}]", "did you mean 'price_in'"),
        ("policies: [{path: runs, price_in: -1}]", "price_in must be a number"),
        ("policies: [{path: runs, price_in: cheap}]", "price_in must be a number"),
        ("policies: [{path: runs, params_b: .nan}]", "params_b must be a number"),
        ("policies: [{name: a}]", "path must be a path"),
        ("policies: [{name: 3, path: runs}]", "name must be text"),
        ("policies: [{path: nowhere}]", "does not exist"),
        ("policies: [{path: runs}]\noptions: {limt: 3}", "did you mean 'limit'"),
    ],
)
def test_mistakes_in_a_plan(tmp_path, text, message):
    model(tmp_path / "runs" / "step_1")
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    with pytest.raises(V0BenchError, match=message):
        read_plan(file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no task"),
        ({"tasks": []}, "no task"),
        ({"tasks": ["a"], "limit": 0}, "1 or more"),
        ({"tasks": ["a"], "limit": True}, "not of type int"),
        ({"tasks": ["a"], "gen_kwargs": "t=1"}, "not of type dict"),
        ({"tasks": ["a"], "backend": 3}, "not of type str"),
    ],
)
def test_mistakes_in_options(options, message):
    with pytest.raises(V0BenchError, match=message):
        make_settings(options)

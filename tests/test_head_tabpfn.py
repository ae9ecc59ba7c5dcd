"""The TabPFN head against the package's own classifier, on small random checkpoints."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from tabpfn_checkpoint import save_checkpoint
from v0_bench import V0BenchError
from v0_bench.v0.heads.tabpfn import TabPFNHead, WeightsMissing, find_weights

VERSIONS = ("v2", "v2.5")
N_FEATURES = 7  # no multiple of the architectures' group sizes 2 and 3


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tabpfn")
    return {version: save_checkpoint(folder / f"{version}.ckpt", version) for version in VERSIONS}


@pytest.fixture(params=VERSIONS)
def weights(request: pytest.FixtureRequest, checkpoints: dict[str, Path]) -> Path:
    return checkpoints[request.param]


def episodes(*sizes: int, n_queries: int = 5, seed: int = 0) -> tuple[Tensor, ...]:
    """Contexts of these sizes with both classes, their items at random places, and queries.

    What stands at the empty places is large, so that it shows where it is used.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (len(sizes), max(sizes))
    features = torch.randn(*shape, N_FEATURES, generator=generator)
    labels = torch.rand(shape, generator=generator)
    mask = torch.zeros(shape, dtype=torch.bool)
    for episode, size in enumerate(sizes):
        places = torch.randperm(max(sizes), generator=generator)[:size]
        mask[episode, places] = True
        labels[episode, places[0]], labels[episode, places[1]] = 0.9, 0.1
    queries = torch.randn(len(sizes), n_queries, N_FEATURES, generator=generator)
    features[~mask] = 1e6
    return features, labels, torch.ones(shape), mask, queries


def by_package(weights: Path, context: np.ndarray, classes: np.ndarray, queries: Tensor) -> Tensor:
    """Probabilities (M,) of the package's classifier: one estimator, features as they are."""
    from tabpfn import TabPFNClassifier
    from tabpfn.preprocessing.configs import PreprocessorConfig

    classifier = TabPFNClassifier(
        model_path=weights,
        n_estimators=1,
        device="cpu",
        inference_precision=torch.float32,
        inference_config={
            "PREPROCESS_TRANSFORMS": [PreprocessorConfig("none", categorical_name="none")],
            "FINGERPRINT_FEATURE": False,
            "FEATURE_SHIFT_METHOD": None,
            "CLASS_SHIFT_METHOD": None,
            "OUTLIER_REMOVAL_STD": None,
        },
    )
    classifier.fit(np.asarray(context), np.asarray(classes))
    return torch.as_tensor(classifier.predict_proba(queries.numpy())[:, 1])


@pytest.mark.parametrize("cached", [False, True])
def test_equals_the_classifier_of_the_package(weights: Path, cached: bool) -> None:
    features, labels, counts, mask, queries = episodes(12, 30, 12, 21)
    features[2, :, 4] = 3.0  # constant in this context, not in its queries
    head = TabPFNHead(weights).eval()
    with torch.no_grad():
        if cached:
            logits = head.logits(head.encode(features, labels, counts, mask), queries)
        else:
            logits = head(features, labels, counts, mask, queries)
    spread = []
    for episode, items in enumerate(mask):
        context = features[episode, items].numpy()
        classes = (labels[episode, items] >= 0.5).long().numpy()
        expected = by_package(weights, context, classes, queries[episode])
        torch.testing.assert_close(logits[episode].sigmoid(), expected, atol=1e-5, rtol=0)
        spread.append(float(expected.max() - expected.min()))
    assert min(spread) > 1e-3, "the checkpoint must tell queries apart"


def test_rates_enter_as_copies(weights: Path) -> None:
    """A rate of 0.6 is 3 of 5 copies; the package is given the 5 rows."""
    features, _, counts, mask, queries = episodes(10)
    fifths = torch.arange(10) % 6
    with torch.no_grad():
        head = TabPFNHead(weights, copies=5)
        values = head(features, fifths[None] / 5, counts, mask, queries).sigmoid()
    repeated = features[0].repeat_interleave(5, dim=0).numpy()
    classes = (torch.arange(5) < fifths[:, None]).long().flatten().numpy()
    expected = by_package(weights, repeated, classes, queries[0])
    torch.testing.assert_close(values[0], expected, atol=1e-5, rtol=0)


def test_one_copy_is_a_threshold_at_one_half(weights: Path) -> None:
    features, labels, counts, mask, queries = episodes(20)
    labels[0, 2] = 0.5
    head = TabPFNHead(weights)
    hard = head(features, (labels >= 0.5).float(), counts, mask, queries)
    assert torch.equal(head(features, labels, counts, mask, queries), hard)


@pytest.mark.parametrize("cached", [False, True])
def test_an_episode_in_a_batch_equals_the_episode_alone(weights: Path, cached: bool) -> None:
    *context, queries = episodes(40, 7, 33, 7)
    head = TabPFNHead(weights)
    with torch.set_grad_enabled(not cached):
        together = head.logits(head.encode(*context), queries)
        for episode, items in enumerate(context[3]):
            alone = [part[episode : episode + 1, items] for part in context]
            logits = head.logits(head.encode(*alone), queries[episode : episode + 1])
            torch.testing.assert_close(logits[0], together[episode], atol=1e-5, rtol=0)


def test_the_order_of_the_context_and_of_the_queries_changes_nothing(weights: Path) -> None:
    *context, queries = episodes(25, 25)
    order, asked = torch.randperm(25), torch.randperm(5)
    head = TabPFNHead(weights)
    moved = head(*(part[:, order] for part in context), queries[:, asked])
    torch.testing.assert_close(moved, head(*context, queries)[:, asked], atol=1e-5, rtol=0)


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_equal_finite_differences(weights: Path, recompute: bool) -> None:
    features, labels, counts, mask, queries = (
        part.double() if part.is_floating_point() else part for part in episodes(9, 9, 6)
    )
    features[~mask] = 0  # a step there must stay within float64's reach
    head = TabPFNHead(weights, recompute=recompute).double()

    def loss(context: Tensor, asked: Tensor) -> Tensor:
        return head(context, labels, counts, mask, asked).tanh().sum()

    inputs = features.clone().requires_grad_(), queries.clone().requires_grad_()
    gradients = torch.autograd.grad(loss(*inputs), inputs)
    assert gradients[0][~mask].abs().max() == 0
    for which in (0, 1):
        direction = torch.randn(inputs[which].shape, dtype=torch.float64)
        step = 1e-6 * direction
        ahead, behind = [features, queries], [features, queries]
        ahead[which], behind[which] = ahead[which] + step, behind[which] - step
        slope = (loss(*ahead) - loss(*behind)) / 2e-6
        expected = (gradients[which] * direction).sum()
        assert abs(expected) > 1e-4, "the checkpoint must have a gradient"
        torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-9)


def test_contexts_that_tabpfn_cannot_take_get_their_smoothed_mean(weights: Path) -> None:
    features, labels, counts, mask, queries = episodes(8, 8, 8, 8, 8)
    mask[0] = False  # empty
    labels[1] = 1.0
    labels[2] = torch.linspace(0, 0.49, 8)  # one class at the threshold
    features[3] = features[3, :1]  # no feature varies
    head = TabPFNHead(weights)
    logits = head(features, labels, counts, mask, queries)
    smoothed = [(0 + 0.5) / 1, (8 + 0.5) / 9, (8 * 0.245 + 0.5) / 9]
    smoothed.append((float(labels[3].sum()) + 0.5) / 9)
    expected = torch.tensor(smoothed)[:, None].expand(4, 5)
    torch.testing.assert_close(logits[:4].sigmoid(), expected)
    ordinary = head(*(part[4:] for part in (features, labels, counts, mask, queries)))
    torch.testing.assert_close(logits[4:], ordinary, atol=1e-5, rtol=0)
    with torch.no_grad():
        cached = head.logits(head.encode(features, labels, counts, mask), queries)
    torch.testing.assert_close(cached, logits, atol=1e-5, rtol=0)


def test_soft_labels_of_one_class_are_used_by_more_copies(weights: Path) -> None:
    features, labels, counts, mask, queries = episodes(8)
    labels[0] = torch.linspace(0, 0.49, 8)
    logits = TabPFNHead(weights, copies=4)(features, labels, counts, mask, queries)
    assert logits.std() > 1e-3


@pytest.mark.parametrize("rows", [0, 6])
@pytest.mark.parametrize("n_queries", [0, 3])
def test_no_items_and_no_queries(weights: Path, rows: int, n_queries: int) -> None:
    features, labels, counts, mask, queries = episodes(6, 6, n_queries=n_queries)
    context = [part[:, :rows] for part in (features, labels, counts, mask)]
    head = TabPFNHead(weights)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            logits = head.logits(head.encode(*context), queries)
        assert logits.shape == (2, n_queries)
        assert logits.isfinite().all()
        assert rows or (logits == 0).all()


def test_a_frozen_head_gets_no_gradient_a_tuned_one_learns(
    checkpoints: dict[str, Path],
) -> None:
    *context, queries = episodes(9)
    frozen = TabPFNHead(checkpoints["v2.5"])
    frozen(*context, queries.requires_grad_()).sum().backward()
    assert all(parameter.grad is None for parameter in frozen.parameters())
    assert queries.grad is not None

    head = TabPFNHead(checkpoints["v2.5"], tuned=True, recompute=False)
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(head.parameters(), lr=3e-3)
    losses = []
    for _ in range(120):  # linear classification in three features
        rows = torch.randn(16, 40, 3, generator=generator)
        classes = (rows @ torch.randn(16, 3, 1, generator=generator) > 0).float().squeeze(2)
        mask = torch.ones(16, 24, dtype=torch.bool)
        logits = head(rows[:, :24], classes[:, :24], torch.ones(16, 24), mask, rows[:, 24:])
        loss = binary_cross_entropy_with_logits(logits, classes[:, 24:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-10:]) < 0.6  # log 2 = .69 without the context


def test_the_default_weights_come_from_the_environment(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("V0_BENCH_TABPFN", str(checkpoints["v2"]))
    assert find_weights() == checkpoints["v2"]
    assert find_weights(checkpoints["v2.5"]) == checkpoints["v2.5"]


@pytest.mark.parametrize("name", ["v2.5", "tabpfn-v2.5-classifier-v2.5_default.ckpt", None])
def test_published_weights_are_found_by_name(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("V0_BENCH_TABPFN", raising=False)
    monkeypatch.setattr("tabpfn.settings.settings.tabpfn.model_cache_dir", tmp_path)
    with pytest.raises(WeightsMissing, match="non-commercial"):
        find_weights(name)
    assert not list(tmp_path.iterdir()), "nothing may be downloaded"
    there = save_checkpoint(tmp_path / "tabpfn-v2.5-classifier-v2.5_default.ckpt")
    assert find_weights(name) == there


def test_missing_weights_are_named() -> None:
    with pytest.raises(WeightsMissing, match=r"'no/such\.ckpt' are neither a file nor in"):
        TabPFNHead("no/such.ckpt")


class Spy:
    """Writes a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_foreign_files_are_refused(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    whole = torch.load(checkpoints["v2.5"], weights_only=True)
    state = dict(whole["state_dict"])
    state.popitem()
    contents = {
        "text.ckpt": b"not a checkpoint",
        "empty.ckpt": b"",
        "text.safetensors": b"not a checkpoint",
        "cut.ckpt": checkpoints["v2.5"].read_bytes()[:5000],
        "pickle.ckpt": pickle.dumps(Spy(tmp_path / "ran")),
        "object.ckpt": Spy(tmp_path / "ran"),
        "tensor.ckpt": torch.zeros(3),
        "lacks.ckpt": whole | {"state_dict": state},
        "regressor.ckpt": whole | {"config": whole["config"] | {"max_num_classes": -1}},
        "unknown.ckpt": whole | {"architecture_name": "other"},
    }
    for name, content in contents.items():
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        with pytest.raises(V0BenchError, match=rf"{name} is not a checkpoint of a TabPFN"):
            TabPFNHead(path)
    assert not (tmp_path / "ran").exists()


def test_no_copies_are_refused(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(V0BenchError, match="copies must be at least 1, not 0"):
        TabPFNHead(checkpoints["v2"], copies=0)

"""Which pool is meant by a path, a name, or nothing."""

from pathlib import Path

import pandas as pd
import pytest

from http_files import Site, serve
from v0_bench.errors import V0BenchError
from v0_bench.pool import default
from v0_bench.pool import download as download_module
from v0_bench.pool.catalogue import catalogue
from v0_bench.pool.default import default_pool, resolve_pool
from v0_bench.pool.pool import Pool


def toy(name: str) -> Pool:
    return Pool(
        name,
        pd.DataFrame({"query_id": ["a"], "dataset": ["d"], "text": ["one?"]}),
        pd.DataFrame({"policy": ["p"]}),
        pd.DataFrame({"query_id": ["a"], "policy": ["p"], "mean_reward": [1.0], "n_rollouts": [1]}),
    )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and an installation without a packaged pool."""
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("V0_BENCH_POOL", raising=False)
    monkeypatch.delenv("V0_BENCH_CATALOGUE", raising=False)
    monkeypatch.setattr(default, "PACKAGED_POOL", tmp_path / "packaged")
    monkeypatch.setattr(download_module, "FIRST_PAUSE", 0.01)
    return tmp_path / "cache"


def test_a_folder_and_a_fetched_name(tmp_path: Path, cache: Path) -> None:
    toy("here").save(tmp_path / "here")
    toy("zeroeval").save(cache / "pools" / "zeroeval")
    assert resolve_pool(str(tmp_path / "here")).name == "here"
    assert resolve_pool("zeroeval").name == "zeroeval"


def test_a_name_not_fetched_yet_says_how() -> None:
    with pytest.raises(V0BenchError, match="v0-bench pool fetch zeroeval"):
        resolve_pool("zeroeval")


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(V0BenchError, match="did you mean 'zeroeval'"):
        resolve_pool("zero-eval")


def test_a_path_that_is_no_pool(tmp_path: Path) -> None:
    with pytest.raises(V0BenchError, match="no such folder"):
        resolve_pool(str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(V0BenchError, match=r"no pool\.json"):
        resolve_pool(str(tmp_path / "empty"))


def test_the_default_is_the_first_that_can_be_had(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy("cached").save(cache / "pools" / "v0-release")
    assert default_pool().name == "cached"
    toy("packaged").save(tmp_path / "packaged")
    assert default_pool().name == "packaged"
    toy("chosen").save(tmp_path / "chosen")
    monkeypatch.setenv("V0_BENCH_POOL", str(tmp_path / "chosen"))
    assert default_pool().name == "chosen"


def test_a_chosen_pool_that_is_not_there_is_no_reason_to_take_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy("packaged").save(tmp_path / "packaged")
    monkeypatch.setenv("V0_BENCH_POOL", str(tmp_path / "absent"))
    with pytest.raises(V0BenchError, match="no such folder"):
        default_pool()


def mirror(tmp_path: Path, base: str) -> str:
    """A catalogue whose official sample stands on another server, with the published hashes."""
    files = ", ".join(
        f'{{ path = "{file.path}", sha256 = "{file.sha256}" }}'
        for file in catalogue()["v0-release"].files
    )
    file = tmp_path / "mirror.toml"
    file.write_text(
        '[v0-release]\ntitle = "T"\nlicence = "L"\ncitation = "C"\nhomepage = "H"\n'
        f'format = "v0-release"\nbase = "{base}"\nfiles = [{files}]\n',
        encoding="utf-8",
    )
    return str(file)


def test_nothing_to_be_had_names_all_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Site({})) as gone:
        base = gone.url
    monkeypatch.setenv("V0_BENCH_CATALOGUE", mirror(tmp_path, base))
    with pytest.raises(V0BenchError) as error:
        default_pool()
    for part in ("V0_BENCH_POOL", str(tmp_path / "packaged"), "official sample", base):
        assert part in str(error.value)


def test_the_official_sample_is_fetched_once(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shared / "pools" / "v0_release"
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    with serve(Site(files)) as site:
        monkeypatch.setenv("V0_BENCH_CATALOGUE", mirror(tmp_path, site.url))
        pool = default_pool()
        assert (pool.name, len(pool.queries), len(pool.outcomes)) == ("v0-release", 2910, 3478)
        asked = len(site.requests)
        assert default_pool().fingerprint == pool.fingerprint
        assert len(site.requests) == asked

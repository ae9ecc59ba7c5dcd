"""Fixtures that several test modules share."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# kept between runs, apart from the cache of whoever runs the tests
os.environ["V0_BENCH_CACHE"] = str(ROOT / ".test-cache")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real pools that may stand beside a checkout of the repository."""
    if not SHARED.is_dir():
        pytest.skip("the folder of real pools (../shared) is not beside this checkout")
    return SHARED


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """The number of torch's threads changes last bits; no test leaves it changed for the next."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    yield
    if torch:
        torch.set_num_threads(before)

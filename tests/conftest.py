"""Fixtures that several test modules share."""

import os
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

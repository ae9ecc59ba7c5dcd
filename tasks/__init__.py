"""Ground-truth tasks for lm-evaluation-harness: the YAML files here and the functions they name.

Each task samples every query `repeats` times and reports the success rate, avg@k.
"""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent

__all__ = ["FOLDER"]

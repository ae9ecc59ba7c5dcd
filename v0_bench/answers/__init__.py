"""Decide whether a response answers a problem: `check(response, gold, kind) -> Verdict`.

The response is untrusted text. Extraction and spelling run here on bounded, linear-time patterns;
everything that needs computer algebra (math-verify, pinned) runs in worker processes that are
killed when they take too long. The conventions (percent, units, lists) are in docs/answers.md.
"""

from v0_bench.answers.checker import KINDS, Verdict, check, check_many
from v0_bench.answers.processes import MATH_VERIFY_VERSION

__all__ = ["KINDS", "MATH_VERIFY_VERSION", "Verdict", "check", "check_many"]

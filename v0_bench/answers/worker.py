"""The worker process: reads `[gold, given]` lines of JSON, writes a line of JSON for each.

Started as `python -P -m v0_bench.answers.worker`. It is built to be lost: the kernel kills it when
one comparison outlasts its alarm, whatever Python is doing; memory is capped; the end of standard
input ends it, so no worker outlives its owner.
"""

import json
import os
import resource
import signal
import sys
from importlib.metadata import version

from v0_bench.answers.processes import COMPARE_SECONDS

_MEMORY_BYTES = 1 << 30
_RECURSION = 3000


def main() -> None:
    """Serve until standard input closes."""
    replies = os.fdopen(os.dup(1), "w", buffering=1, encoding="ascii")
    os.dup2(2, 1)  # whatever a library prints must not mix with the replies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(_RECURSION)
    from v0_bench.answers.compare import same_answer

    same_answer(r"\frac{x}{2}+1", r"1+\frac{1}{2}x")  # loads the parser's tables
    replies.write(json.dumps({"version": version("math-verify")}) + "\n")
    for line in sys.stdin:
        gold, given = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, COMPARE_SECONDS)
        try:
            reply: dict[str, object] = {"equal": same_answer(gold, given)}
        except Exception as error:  # any failure of the parser or of SymPy is "not comparable"
            reply = {"error": type(error).__name__}
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()

"""Messages for unknown names: say what was asked for and what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence naming the nearest known name, or all of them if none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
    return f"unknown {kind} {name!r}: {hint}"

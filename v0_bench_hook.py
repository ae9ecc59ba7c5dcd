"""Imported when Python starts, by v0_bench_hook.pth: shows lm-eval the tasks of V0-Bench.

Cheap until lm_eval.tasks.manager is imported; then it loads v0_bench.lm_eval_plugin once. Set
V0_BENCH_NO_HOOK to anything to switch it off. Whatever fails is told on stderr, never raised.
"""

import os
import sys

_MODULE = "lm_eval.tasks.manager"


class _Finder:
    """Finds lm-eval's task manager as the other finders do, and adds a step to its loading."""

    def find_spec(self, name, path=None, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return _extended(spec)
        return None


def _extended(spec):
    load = getattr(spec.loader, "exec_module", None)
    if load is None:
        return spec

    def exec_module(module):
        load(module)
        try:
            from v0_bench.lm_eval_plugin import install

            install(module.TaskManager)
        except Exception as error:
            print(f"v0-bench: its tasks are not known to lm-eval ({error!r})", file=sys.stderr)

    spec.loader.exec_module = exec_module
    return spec


if not os.environ.get("V0_BENCH_NO_HOOK"):
    sys.meta_path.insert(0, _Finder())

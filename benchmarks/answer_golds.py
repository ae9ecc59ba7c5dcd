"""How often the answer checker accepts right golds and rejects wrong ones, per problem set.

    python benchmarks/answer_golds.py --data ../shared/problem_sets [--json FILE] [--rows 20000]

Right: each gold in several spellings, some rewritten by SymPy. Wrong: golds of other problems and
golds with one digit or sign changed; a pair counts only if neither the normalised strings nor the
values read by this script (SymPy's own parser, not the checker's) are equal. Failures are listed by
query id and spelling. Targets: accepted >= 99.5 %, rejected >= 99.9 % per set.
"""

import argparse
import json
import random
import re
import time
from functools import cache
from pathlib import Path

import sympy
from sympy.parsing.sympy_parser import (
    implicit_multiplication,
    parse_expr,
    split_symbols,
    standard_transformations,
)

from v0_bench.answers import MATH_VERIFY_VERSION, check_many

SETS = ("dapo_math_17k", "aime_2024", "aime_2025", "math_500", "olympiad_bench")
ACCEPTED, REJECTED = 0.995, 0.999
WRONG_GOLDS = 3
_READER = (*standard_transformations, split_symbols, implicit_multiplication)
_PLAIN_WORDS = {"pi": sympy.pi, "i": sympy.I, "e": sympy.E}
_SETTINGS = [0.37, 1.91, 2.83]  # what the free symbols stand for when values are compared


def spellings(gold: str) -> dict[str, str]:
    """Responses that give this gold, by the name of the spelling."""
    text = gold.strip()
    bare = text.replace("$", "") if text.count("$") % 2 == 0 and "\\$" not in text else text
    fancy = re.sub(r"\\frac(?![a-zA-Z])", r"\\dfrac", bare)
    fancy = re.sub(r"(?<![\\a-zA-Z])\(", r"\\left(", fancy).replace(")", "\\right)")
    if "[" in bare:
        fancy = bare  # half-open brackets pair across kinds
    symbols = bare.replace("-", "−").replace("\\pi", "π").replace("\\cup", "∪")
    found = {
        "box": f"We add up.\n\n\\[ \\boxed{{{text}}} \\]",
        "fbox with spaces": f"So \\fbox {{ {bare} }}, as was to be shown.",
        "thought and box": f"<think>Perhaps \\boxed{{-1}}?</think>\nIt is $\\boxed{{{fancy}}}$.",
        "sentence": f"The final answer is ${bare}$. I hope it is correct.",
        "line": f"Step 1: think.\n**Answer:** ${bare}$",
        "unicode": f"\\boxed{{{symbols}}}",
        "two boxes": f"First \\boxed{{0}}, corrected: \\boxed{{\\boxed{{{bare}}}}}",
    }
    found |= _integer_spellings(bare) if re.fullmatch(r"-?\d+", bare) else _rewritten(bare)
    return found


def _integer_spellings(text: str) -> dict[str, str]:
    value = int(text)
    latex_commas = f"{value:,}".replace(",", "{,}")
    digits, sign = str(abs(value)), "-" if value < 0 else ""
    return {
        "leading zero": f"\\boxed{{{sign}0{digits}}}",
        "decimal": f"\\boxed{{{value}.0}}",
        "label": f"\\boxed{{m + n = {value}}}",
        "commas": f"\\boxed{{{value:,}}}",
        "LaTeX commas": f"\\boxed{{{latex_commas}}}",
        "bold": f"\\boxed{{\\mathbf{{{value}}}}}",
        "text": f"Answer: \\text{{{value}}}.",
        "plain sentence": f"So the answer is {value}.",
    }


def _rewritten(text: str) -> dict[str, str]:
    """The value printed anew by SymPy, where this script can read it; lists in reverse."""
    found = {}
    pieces = top_level(text)
    if len(pieces) > 1 and "\\pm" not in text:
        found["reversed list"] = f"\\boxed{{{', '.join(reversed(pieces))}}}"
    value = None if "%" in text or "=" in text or "circ" in text else expression(text)
    if value is not None and not re.search(r"text|mbox|_", text):
        found["printed by SymPy"] = f"\\boxed{{{sympy.latex(value)}}}"
        found["expanded"] = f"\\boxed{{{sympy.latex(sympy.expand(value))}}}"
    return found


def top_level(text: str) -> list[str]:
    """The text split at commas outside brackets, thousands separators aside."""
    if re.fullmatch(r"\D{0,3}\d{1,3}(,(\\!\s?)?\d{3})+\.?", text.strip("$")):
        return [text]
    pieces, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += char
    return [piece.strip() for piece in pieces]


@cache
def expression(text: str) -> sympy.Expr | None:
    """This script's own reading of one LaTeX expression; None for what it cannot read."""
    text = re.sub(r"\\(left|right|quad|displaystyle|!|,|;| )|\$|\.$", "", text)
    text = re.sub(r"\^\s*\{?\\circ\}?|\\(text|mbox)\{[^{}]*\}(\^\d)?|\\?%", "", text)
    text = text.split("=")[-1].strip()
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    text = re.sub(r"(\d+)\s*\\frac\s*(\d)(\d)", r"(\1+\2/\3)", text)
    text = re.sub(r"(?<![\d.{])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}", r"(\1+\2/\3)", text)
    text = re.sub(r"\\[dt]?frac\s*(\d)\s*(\d)", r"((\1)/(\2))", text)
    text = re.sub(r"\\[dt]?frac\s*(\d)\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"\\sqrt\s*(\d)", r"sqrt(\1)", text)
    for _ in range(4):
        text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"sqrt(\1)", text)
        text = re.sub(r"\\sqrt\s*\[(\d)\]\s*\{([^{}]*)\}", r"((\2)**(1/\1))", text)
        text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"((\1)/(\2))", text)
        text = re.sub(r"\^\s*\{([^{}]*)\}", r"**(\1)", text)
        text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*(\d)", r"((\1)/(\2))", text)
    text = re.sub(r"\\(cdot|times)", "*", text).replace("\\pi", " pi ").replace("^", "**")
    if not text.strip() or re.search(r"[\\{}\[\]_,|]|[a-zA-Z]{5,}|!", text):
        return None
    names = {
        name: sympy.Symbol(name) for name in "abcdfghjklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    }
    try:
        value = parse_expr(
            text.strip(), {**names, **_PLAIN_WORDS}, _READER, evaluate=len(text) < 40
        )
    except Exception:  # whatever SymPy's parser raises: unreadable here
        return None
    return value if isinstance(value, sympy.Expr) else None


@cache
def value(text: str) -> tuple[complex, ...] | None:
    """Numbers that stand for a gold: the sorted values of its items; None if one is unreadable.

    Brackets are ignored and free symbols set to fixed numbers, so equal answers get equal values
    and some unequal ones do as well (those pairs are left out).
    """
    inner = re.sub(r"\\left|\\right|\\[{}]|[\[\]]", "", text)
    inner = re.sub(r"^\((.*,.*)\)$", r"\1", inner.replace("$", "").strip(" ."))
    found: list[complex] = []
    for piece in top_level(inner):
        read = [expression(piece.replace("\\pm", sign)) for sign in "+-"[: 1 + ("\\pm" in piece)]]
        for item in read:
            if item is None:
                return None
            symbols = sorted(item.free_symbols, key=str)
            for setting in _SETTINGS[: 3 if symbols else 1]:
                numbers = {s: setting + 0.1 * i for i, s in enumerate(symbols)}
                try:
                    found.append(complex(item.evalf(20, subs=numbers)))
                except (TypeError, OverflowError):
                    return None
    return tuple(sorted(found, key=lambda z: (round(z.real, 6), round(z.imag, 6))))


def surely_different(gold: str, other: str) -> bool:
    """Neither the strings nor the values agree, and at least one of the two could be read."""
    if normal(gold) == normal(other):
        return False
    left, right = value(gold), value(other)
    if left is None and right is None:
        return not (re.search(r"[\d\\]", gold) and re.search(r"[\d\\]", other))
    if left is None or right is None:
        return True
    if len(left) != len(right):
        return True
    scales = (1, 100, 0.01) if "%" in gold + other else (1,)
    return not any(
        all(abs(a - k * b) <= 1e-9 * max(1, abs(a)) for a, b in zip(left, right, strict=True))
        for k in scales
    )


def normal(text: str) -> str:
    text = re.sub(r"\\(left|right|displaystyle|!|,|;| )|[$\s]", "", text)
    return text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").strip(".").lower()


def changed_answers(gold: str, others: list[str], rng: random.Random) -> dict[str, str]:
    """Answers that are most likely not this gold, by how they were made."""
    drawn = {f"gold {i}": rng.choice(others) for i in range(WRONG_GOLDS)}
    numbers = list(re.finditer(r"\d+", gold))
    if numbers:
        place = rng.choice(numbers)
        nearby = str(int(place.group()) + rng.choice([1, 2, 10]))
        drawn["one number changed"] = gold[: place.start()] + nearby + gold[place.end() :]
        drawn["sign changed"] = gold.removeprefix("-") if gold[0] == "-" else f"-{gold}"
    return drawn


def study(path: Path, rows: int, seed: int) -> dict[str, object]:
    """Accepted and rejected shares of one problem set, with every failure."""
    rng = random.Random(seed)
    problems = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if rows < len(problems):
        problems = rng.sample(problems, rows)
    golds = sorted({problem["answer"] for problem in problems})
    right, wrong, left_out = [], [], 0
    for problem in problems:
        name, gold = problem["query_id"], problem["answer"]
        right += [(name, how, text, gold) for how, text in spellings(gold).items()]
        drawn = changed_answers(gold, golds, rng)
        made = {how: text for how, text in drawn.items() if surely_different(gold, text)}
        left_out += len(drawn) - len(made)
        wrong += [(name, how, f"\\boxed{{{text}}}", gold) for how, text in made.items()]
    start = time.perf_counter()
    missed, accepted = judge(right, True)
    let_through, rejected = judge(wrong, False)
    seconds = time.perf_counter() - start
    return {
        "set": path.stem,
        "problems": len(problems),
        "right": len(right),
        "accepted": accepted,
        "wrong": len(wrong),
        "rejected": rejected,
        "left_out": left_out,
        "ms_per_check": 1000 * seconds / (len(right) + len(wrong)),
        "missed": missed,
        "let_through": let_through,
    }


def judge(cases: list[tuple[str, str, str, str]], wanted: bool) -> tuple[list[dict], float]:
    """The cases whose verdict is not `wanted`, and the share of those whose verdict is."""
    verdicts = check_many([case[2] for case in cases], [case[3] for case in cases])
    failed = [
        {"query_id": case[0], "spelling": case[1], "answer": verdict.extracted, "gold": case[3],
         "reason": verdict.reason}
        for case, verdict in zip(cases, verdicts, strict=True)
        if verdict.correct is not wanted
    ]  # fmt: skip
    return failed, 1 - len(failed) / len(cases)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of problem sets (.jsonl)")
    parser.add_argument("--rows", type=int, default=20000, help="at most this many problems a set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the numbers and failures to this file")
    options = parser.parse_args()
    results = []
    for name in SETS:
        found = study(options.data / f"{name}.jsonl", options.rows, options.seed)
        results.append(found)
        print(
            f"{name:16} {found['problems']:6} problems  accepted {found['accepted']:.4%} of "
            f"{found['right']}  rejected {found['rejected']:.4%} of {found['wrong']} "
            f"({found['left_out']} left out)  "
            f"{found['ms_per_check']:.2f} ms a check"
        )
        for side in ("missed", "let_through"):
            for failure in found[side]:
                print(f"  {side}: {json.dumps(failure, ensure_ascii=False)}")
    if options.json:
        report = {"math_verify": MATH_VERIFY_VERSION, "seed": options.seed, "sets": results}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    good = all(r["accepted"] >= ACCEPTED and r["rejected"] >= REJECTED for r in results)
    print("targets met" if good else "targets missed")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())

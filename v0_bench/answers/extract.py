"""Find the answer in a response: after the thought, the last box, else the last answer line.

Every pattern here is linear in the length of the response, which may be megabytes of anything.
"""

import re

from v0_bench.answers.quantity import is_unit_word

LONGEST_ANSWER = 1000  # characters; the longest gold answer of the known data sets has 200
LONGEST_LINE = 1500
MOST_LINES = 20  # candidate answer lines looked at, from the end

_THOUGHT_TAG = re.compile(r"<[ ]{0,3}(/?)[ ]{0,3}(?:think|thinking|thought)[ ]{0,3}>", re.I)
_COLON = re.compile("[:：=]")
_BRACE = re.compile(r"\\[a-zA-Z]+|\\.|[{}]", re.S)
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s{0,5}(\{)?")
_BARE_BOX = re.compile(r"\\frac\s?\d\s?\d|-?[\w.,/]{1,40}")
_ANSWER_WORDS = r"answers?|respuesta|réponse|reponse|antwort|resposta|risposta|ответ"
_ANSWER_LINE = re.compile(
    rf"(?:(?<!\w)(?:{_ANSWER_WORDS})(?!\w)|答案|答え|정답|답)"
    r"[^\S\n]{0,5}[*_]{0,3}[^\S\n]{0,5}(?:(?:is|are|es|est|ist|é|è|是|为|為|は)(?![a-z])|[:：=])"
    r"[^\S\n]{0,5}(?:[:：])?[*_]{0,3}\s{0,5}",
    re.I,
)
_ANSWER_HEADING = re.compile(
    r"^[ ]{0,3}(?:#{1,6}|[*]{2})[ ]{0,3}(?:final )?answer[ ]{0,3}[*:]{0,3}[^\S\n]{0,3}\n\s{0,5}"
    r"|^####[ ]{0,3}(?=[-\d])",
    re.I | re.M,
)
_MATH = re.compile(
    r"(?<!\\)\$\$?((?:\\.|[^$\\]){1,1000})\$\$?"
    r"|\\\(([^$]{1,1000}?)\\\)|\\\[([^$]{1,1000}?)\\\]"
)
_JOINT = re.compile(r"\s{0,5}(?:,|;|and|or|,\s?and|,\s?or)?\s{0,5}", re.I)
_SENTENCE_END = re.compile(r"[.!?。！？](?=\s|$|[*])|。")
_TAIL = re.compile(r",?\s(?:is|because|since|where|which|so|as|for|when|with|I hope)\s", re.I)
_HEDGE = re.compile(r"\b(?:not|never|no|neither|least|most|more|less|fewer|greater|smaller)\b|n't")
_CONTINUES = {"%", "percent", "or", "and", "hundred", "thousand", "million", "billion", "dozen"}
_PROSE = re.compile(r"(?<!\\)(?<![a-zA-Z])[a-zA-Z]{3,}")


def after_thought(response: str) -> str | None:
    """The text after the last closed thought; None where a thought is still open."""
    last = None
    for last in _THOUGHT_TAG.finditer(response):  # noqa: B007
        pass
    if last is None:
        return response
    return response[last.end() :] if last.group(1) else None


def last_box(text: str) -> str | None:
    r"""The content of the last balanced, non-empty `\boxed` or `\fbox`, inner boxes unwrapped.

    Also reads `\boxed {70}` and, with no braces at all, `\boxed 70`.
    """
    closes = _closing_braces(text)
    answer, end = None, -1
    for match in _BOX.finditer(text):
        if match.start() < end:
            continue  # inside the box just read
        if match.group(1) is None:
            bare = _BARE_BOX.match(text, match.end())
            content = bare.group().rstrip(".,") if bare else ""
        else:
            close = closes.get(match.end() - 1)
            if close is None:
                continue
            content, end = text[match.end() : close], close
        if content.strip(" \n\t$"):
            answer = content
    return None if answer is None else unwrap_boxes(answer)


def unwrap_boxes(content: str) -> str:
    r"""Remove `\boxed` and `\fbox` and their braces, keeping what they hold."""
    if len(content) > LONGEST_ANSWER:
        return content  # too long to be an answer whatever is inside
    while match := _BOX.search(content):
        close = _closing_braces(content).get(match.end() - 1) if match.group(1) else None
        inside = content[match.end() :] if close is None else content[match.end() : close]
        rest = "" if close is None else content[close + 1 :]
        content = content[: match.start()] + inside + rest
    return content.strip()


def answer_line(text: str, truncated: bool = False) -> str | None:
    """What follows the last "Answer:", "the answer is", "#### " and the like; None without one.

    A truncated text may end inside the answer, so there only complete lines count.
    """
    if truncated:
        text = text[: text.rfind("\n") + 1]
    fallback = None
    for start, weak in _line_starts(text):
        line = text[start : start + LONGEST_LINE].split("\n", 1)[0]
        answer = _clean_line(line)
        if answer and (not weak or not _only_prose(answer)):
            return answer
        fallback = fallback or answer or None
    return fallback


def bare_answer(text: str) -> str | None:
    """The whole text where it is one short line without prose, such as `70` or `$x = 3$`."""
    line = text.strip()
    if not line or len(line) > 100 or "\n" in line or _PROSE.search(line):
        return None
    return _clean_line(line) or None


def _closing_braces(text: str) -> dict[int, int]:
    """Position of each matched `{` -> position of its `}`, escaped braces aside."""
    opened: list[int] = []
    closes: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            closes[opened.pop()] = match.start()
    return closes


def _line_starts(text: str) -> list[tuple[int, bool]]:
    """(position, whether only a verb introduces it) of possible answers, the last first.

    "This answer is correct" is weak: it must not hide an earlier "Answer: 70".
    """
    starts = {
        match.end(): not _COLON.search(match.group()) for match in _ANSWER_LINE.finditer(text)
    }
    starts |= {match.end(): False for match in _ANSWER_HEADING.finditer(text)}
    return sorted(starts.items(), reverse=True)[:MOST_LINES]


def _only_prose(answer: str) -> bool:
    return re.search(r"[\d$\\]|^\W*[a-zA-Z]\W*$", answer) is None


def _clean_line(line: str) -> str:
    """The answer inside a line: its formulas where it has some, else its first clause."""
    line = line.strip().strip("*_`").strip()
    segments = list(_MATH.finditer(line))
    if segments:
        first = segments[0]
        stop = first.end()
        for segment in segments[1:]:
            if not _JOINT.fullmatch(line[stop : segment.start()]):
                break
            stop = segment.end()
        before = line[: first.start()].strip()
        if not before or (_PROSE.search(before) and not _HEDGE.search(before)):
            return (line[first.start() : stop] + _continued(line[stop:])).strip()
    line = _SENTENCE_END.split(line, maxsplit=1)[0]
    return _TAIL.split(line, maxsplit=1)[0].strip().strip("*_`").strip()


def _continued(rest: str) -> str:
    """The words after a formula that belong to the answer: a unit, `million`, `or more`."""
    words = _SENTENCE_END.split(rest, maxsplit=1)[0].strip(" *_")
    first = re.match(r"%|[a-zA-Z]+", words)
    if first is None or not (first.group() in _CONTINUES or is_unit_word(first.group())):
        return ""
    return f" {_TAIL.split(words, maxsplit=1)[0]}"

"""Words and shapes that no reader should meet, and what to write instead."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# Anywhere: documents, templates, code, comments.
EVERYWHERE = {
    r"whoever|whomever|somebody|anybody": "name the actor: reader, owner, analyst",
    r"(tell|tells|told|telling)( \w+)? of\b": "shows, describes",
    r"(tell|tells|told|telling) \w*\s?apart": "distinguish",
    r"cannot be told|can be told": "not significantly different; cannot be distinguished",
    r"\bof no\b|(?-i:\b(is|are) none\b)|nothing but\b": "say what is",
    r"beforehand|thought before": "in advance; before the release",
    r"those (exposed|observed|whom?)\b": "compliers; units with an observed outcome",
    r"all at once": "simultaneous",
    r"suspicion|suspects\b": "how sure a reader is",
    r"next to nothing|means? little|hold together|holds together": "say what is",
    r"carr(y|ies|ied)( it)? out": "publish, run",
    r"false alarms?": "false positive",
    r"kept columns?": "passthrough column",
    r"privacy share": "variance due to privacy",
    r"judged together": "multiple-testing family",
    r"wherever the data": "data sources",
    r"\bwhatever\b": "any, all",
    r"\balike\b": "equally, the same",
    r"\bbeside\b": "next to",
    r"\banew\b": "again",
    r"\bas drawn\b": "(delete)",
    r"\btells?\b": "shows, identifies",
    r"\b(is|are|was|were) of[.,;:]": "name what it describes",
    r"\bcut by\b": "segment by",
    r"\b(arm|control|treatment) errors?\b": "treatment SE, control SE",
    r"shared? out\b": "divide",
    r"clusters (take|give)s? off": "variance reduction from stratification",
    r"\bholdouts?\b": "held-out fold",
    r"--(keep|implies|reference|for|holdout|spec)\b(?!-)": "the option's new name",
}
# In prose that people read on purpose: documents and pages, outside code.
IN_PROSE = {
    r"refus(e|es|ed|al|als|ing)\b": "reject",
    r"promis(e|es|ed|ing)\b": "guarantee",
    r"neighbou?rs\b|neighbouring": "neighboring tables",
    r"\beveryone\b": "all units",
    r"\bchannels?\b": "randomizer",
    r"\bnets?\b": "safety check",
    r"debiased outcomes?": "debiased column",
    r"noisy labels?": "noisy cluster",
    r"\bcategor(y|ies)\b": "outcome combination",
    r"\bimplications?\b": "constraint",
    r"\bnotices?\b": "owner-only warning",
    r"\bcommitted\b": "published",
    r"(what|as far as) can be seen|be seen in it": "minimum detectable effect; none found",
    r"taken (to be|for granted)|made no difference|goes? with it\b": "assumed; changed nothing",
    r"has no bounds|good for one": "holds every possible value; works in one",
    r"left behind, not|nothing to hide|gives? \w+ away|what it can be": "say what is",
    r"std errors?": "standard error (SE)",
    r"outcome spaces?": "allowed values",
    r"colour|behaviour|honour|centre\b|\bgrey\b|optimis|minimis|labelled": "American",
}


class Found(NamedTuple):
    """A forbidden word, and where it is."""

    line: int
    word: str
    instead: str


def forbidden(text: str, rules: dict[str, str]) -> Iterator[Found]:
    """The forbidden words of a text, in any case; a line may end within one."""
    for pattern, instead in rules.items():
        for found in re.finditer(pattern.replace(" ", r"\s+(?:#\s)?"), text, re.IGNORECASE):
            yield Found(text.count("\n", 0, found.start()) + 1, found[0], instead)


def without_code(text: str) -> str:
    """Markdown with its code blanked out, line by line."""
    fences = re.compile(r"^[ >]*```.*?^[ >]*```$", re.DOTALL | re.MULTILINE)
    text = fences.sub(lambda found: "\n" * found[0].count("\n"), text)
    text = re.sub(r"`[^`\n]+`", "``", text)
    return re.sub(r"\]\([^)\s]+\)", "]()", text)


def messages(code: str) -> Iterator[str]:
    """The texts of a module that are not docstrings: messages, help and names that people see."""
    tree = ast.parse(code)
    alone = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for one in ast.walk(tree):
        if not isinstance(one, ast.Constant) or not isinstance(one.value, str):
            continue
        if id(one) not in alone and " " in one.value.strip():
            yield one.value


def docstrings(name: str, value: object) -> Iterator[tuple[str, str]]:
    """The docstrings of a function, or of a class and what is public in it."""
    yield name, inspect.getdoc(value) or ""
    if inspect.isclass(value):
        for member in sorted(vars(value)):
            if not member.startswith("_"):
                yield f"{name}.{member}", inspect.getdoc(getattr(value, member, None)) or ""

"""SQL as far as a definition needs it without Spark: statements, and the tables they read.

No grammar: tokens, and the words behind FROM and JOIN. Spark itself judges the rest, when the
pipeline runs or with `validate --deep`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|`(?P<quoted>(?:[^`]|``)*)`"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_CREATE: Final = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY|TEMP)\s+VIEW\s+(?:`(?P<quoted>[^`]+)`|(?P<word>\w+))"
    r"\s+AS\s+(?P<query>.+)",
    re.DOTALL | re.IGNORECASE,
)
_FROM_IN_CALLS: Final = frozenset({"extract", "substring", "substr", "trim", "overlay"})
_AFTER_RELATION: Final = frozenset(
    {"where", "group", "having", "order", "limit", "offset", "qualify", "cluster", "distribute"}
    | {"sort", "union", "intersect", "except", "window", "lateral", "join", "inner", "left"}
    | {"right", "full", "cross", "natural", "on", "using", "select"}
)
"""Words behind which a comma no longer parts tables."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a name in back quotes, or a sign; texts, numbers and comments are left out."""

    kind: str
    text: str
    position: int

    @property
    def lower(self) -> str:
        """As keywords are compared; a quoted name is never a keyword."""
        return "" if self.kind == "quoted" else self.text.lower()

    @property
    def is_name(self) -> bool:
        """Whether it may name something."""
        return self.kind in ("word", "quoted")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a file."""

    text: str
    position: int

    @property
    def created_view(self) -> tuple[str, str] | None:
        """Name and query, if it is `CREATE TEMPORARY VIEW name AS query`."""
        match = _CREATE.fullmatch(self.text)
        if match is None:
            return None
        return match["quoted"] or match["word"], match["query"].strip()


def tokens(text: str) -> list[Token]:
    """What a text is made of, without space, comments, texts in quotes and numbers."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind in ("word", "quoted", "sign"):
            found.append(Token(kind, match[kind], match.start()))
        elif kind in ("text", "number"):
            found.append(Token("literal", "", match.start()))
    return found


def statements(text: str) -> list[Statement]:
    """The statements of a file, parted by semicolons; comments before one are left out."""
    found = []
    begin: int | None = None
    for match in _TOKEN.finditer(text):
        if match["sign"] == ";":
            if begin is not None:
                found.append(Statement(text[begin : match.start()].strip(), begin))
            begin = None
        elif begin is None and match["space"] is None:
            begin = match.start()
    if begin is not None:
        found.append(Statement(text[begin:].strip(), begin))
    return found


def tables_of(query: str) -> dict[str, int]:
    """Tables that a query reads, each with its first position in the text.

    Names with a catalog or database (`sales.orders`) are Spark's own tables and left out, as are
    functions and what the query names itself in WITH.
    """
    scan = _Scan(tokens(query))
    return {name: position for name, position in scan.run().items() if name not in scan.local}


class _Scan:
    """Walks over the tokens of a query."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._tables: dict[str, int] = {}
        self.local: set[str] = set()
        """Names of WITH."""

    def run(self) -> dict[str, int]:
        """The tables."""
        calls: list[str] = []
        lists: list[bool] = [False]  # Whether a comma parts relations, by depth of parentheses.
        for index, token in enumerate(self._tokens):
            if token.text == "(" and token.kind == "sign":
                calls.append(self._word(index - 1))
                lists.append(False)
                self._note_local(index)
            elif token.text == ")" and token.kind == "sign":
                if calls:
                    calls.pop()
                    lists.pop()
            elif token.lower in ("from", "join") and not self._is_other_from(index, calls):
                lists[-1] = token.lower == "from"
                self._relation(index + 1)
            elif token.text == "," and lists[-1]:
                self._relation(index + 1)
            elif token.lower in _AFTER_RELATION:
                lists[-1] = False
        return self._tables

    def _word(self, index: int) -> str:
        return self._tokens[index].lower if 0 <= index < len(self._tokens) else ""

    def _is_other_from(self, index: int, calls: list[str]) -> bool:
        """EXTRACT(day FROM x), or IS DISTINCT FROM."""
        if calls and calls[-1] in _FROM_IN_CALLS:
            return True
        return self._word(index - 1) == "distinct" and self._word(index - 2) in ("is", "not")

    def _note_local(self, index: int) -> None:
        """`WITH name AS (`, and `WITH name (columns) AS (`."""
        at = index - 1
        if self._word(at) != "as":
            return
        at -= 1
        if at >= 0 and self._tokens[at].text == ")":
            while at >= 0 and self._tokens[at].text != "(":
                at -= 1
            at -= 1
        if at >= 0 and self._tokens[at].is_name:
            self.local.add(self._tokens[at].text)

    def _relation(self, index: int) -> None:
        """A table behind FROM, JOIN or a comma; `STREAM t` and `STREAM(t)` read t as well."""
        if self._word(index) == "stream" and index + 1 < len(self._tokens):
            following = self._tokens[index + 1]
            index += 1 + (following.text == "(" and following.kind == "sign")
        elif self._word(index) == "lateral":
            return
        if index >= len(self._tokens) or not self._tokens[index].is_name:
            return
        after = self._tokens[index + 1].text if index + 1 < len(self._tokens) else ""
        if after in (".", "(") or self._word(index) in ("select", "values", "table"):
            return
        self._tables.setdefault(self._tokens[index].text, self._tokens[index].position)

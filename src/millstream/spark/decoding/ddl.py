"""Spark's DDL for columns, read without Spark's JVM: `id BIGINT, tags ARRAY<STRING>`.

A data source is made in a Python process of its own that has no JVM to ask. All columns may be
null, whatever is written: a value that lacks one must not fail the job.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from pyspark.sql import types as T

from millstream.errors import InvalidArgument

_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*')|(\w+)|(\S))")
_SIMPLE: Final[dict[str, T.DataType]] = {
    "bigint": T.LongType(),
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "byte": T.ByteType(),
    "date": T.DateType(),
    "double": T.DoubleType(),
    "float": T.FloatType(),
    "int": T.IntegerType(),
    "integer": T.IntegerType(),
    "long": T.LongType(),
    "real": T.FloatType(),
    "short": T.ShortType(),
    "smallint": T.ShortType(),
    "string": T.StringType(),
    "timestamp": T.TimestampType(),
    "tinyint": T.ByteType(),
}
_END: Final = ""


def parse_ddl(text: str) -> T.StructType:
    """The columns; `STRUCT<...>` around them may be left out."""
    parser = _Parser(text)
    if parser.next_is("struct") and parser.next_is("<", ahead=1):
        found = parser.type()
        assert isinstance(found, T.StructType)
    else:
        found = T.StructType(parser.fields(_END))
    parser.expect(_END)
    return found


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        # A quoted name is marked: it is a name even where a word of the language could stand.
        self._tokens = [
            (quoted.replace("``", "`"), True) if quoted else (string or word or sign, False)
            for quoted, string, word, sign in _TOKEN.findall(text)
        ]
        self._position = 0

    def next_is(self, token: str, ahead: int = 0) -> bool:
        return self._peek(ahead).lower() == token

    def fields(self, end: str) -> list[T.StructField]:
        found = []
        while True:
            name = self._take_name()
            if self.next_is(":"):
                self._position += 1
            found.append(T.StructField(name, self.type()))
            self._skip_remarks()
            if self.next_is(end):
                return found
            self.expect(",")

    def type(self) -> T.DataType:
        word = self._take().lower()
        match word:
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case "array":
                self.expect("<")
                element = self.type()
                self.expect(">")
                return T.ArrayType(element)
            case "map":
                self.expect("<")
                key = self.type()
                self.expect(",")
                value = self.type()
                self.expect(">")
                return T.MapType(key, value)
            case "struct":
                self.expect("<")
                fields = self.fields(">")
                self.expect(">")
                return T.StructType(fields)
        if word not in _SIMPLE:
            self._fail(f"{word or 'the end'!r} is no type")
        return _SIMPLE[word]

    def expect(self, token: str) -> None:
        if not self.next_is(token):
            self._fail(f"{self._peek()!r} instead of {token or 'the end'!r}")
        self._position += 1

    def _decimal(self) -> T.DataType:
        if not self.next_is("("):
            return T.DecimalType(10, 0)
        self.expect("(")
        precision, scale = self._number(), 0
        if self.next_is(","):
            self.expect(",")
            scale = self._number()
        self.expect(")")
        return T.DecimalType(precision, scale)

    def _number(self) -> int:
        word = self._take()
        if not word.isdigit():
            self._fail(f"{word!r} is no number")
        return int(word)

    def _skip_remarks(self) -> None:
        if self.next_is("not") and self.next_is("null", ahead=1):
            self._position += 2
        if self.next_is("comment"):
            self._position += 2

    def _take_name(self) -> str:
        is_quoted = self._position < len(self._tokens) and self._tokens[self._position][1]
        name = self._take()
        if not is_quoted and not re.fullmatch(r"\w+", name):
            self._fail(f"{name or 'the end'!r} is no name of a column")
        return name

    def _take(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _peek(self, ahead: int = 0) -> str:
        position = self._position + ahead
        return self._tokens[position][0] if position < len(self._tokens) else _END

    def _fail(self, problem: str) -> NoReturn:
        raise InvalidArgument(
            f"the schema {self._text!r} is not as `id BIGINT, at TIMESTAMP`: {problem}"
        )

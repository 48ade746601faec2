"""SQL is read as far as needed: statements, and the tables of a query."""

from __future__ import annotations

import pytest

from millstream.spark.pipelines.sql_text import statements, tables_of


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT * FROM a", ["a"]),
        ("select * from a x, `b c` as y where x.i in (1, 2)", ["a", "b c"]),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT JOIN c USING (x)", ["a", "b", "c"]),
        ("SELECT * FROM STREAM a JOIN STREAM(b) ON true", ["a", "b"]),
        ("SELECT * FROM sales.orders JOIN a ON true", ["a"]),
        ("SELECT * FROM range(10), a", ["a"]),
        ("SELECT * FROM (SELECT * FROM a) x, b", ["a", "b"]),
        ("WITH t AS (SELECT * FROM a), u (x) AS (SELECT 1 FROM b) SELECT * FROM t, u", ["a", "b"]),
        ("SELECT extract(day FROM ts), trim(BOTH FROM x), y IS DISTINCT FROM z FROM a", ["a"]),
        ("SELECT x IS NOT DISTINCT FROM y FROM a", ["a"]),
        ("SELECT DISTINCT x FROM a", ["a"]),
        ("SELECT 'FROM b', \"FROM c\" /* FROM d */ FROM a -- FROM e", ["a"]),
        ("SELECT * FROM a, LATERAL explode(x) UNION ALL SELECT * FROM b", ["a", "b"]),
        ("SELECT * FROM VALUES (1), (2)", []),
        ("SELECT f(x, y), (SELECT max(i) FROM b) FROM a GROUP BY x, y", ["a", "b"]),
        ("SELECT 1 FROM", []),
        ("SELECT 1 )", []),
        ("FROM a SELECT x, y", ["a"]),
    ],
)
def test_tables_of_a_query(query: str, tables: list[str]) -> None:
    assert sorted(tables_of(query)) == sorted(tables)


def test_statements_are_parted_by_semicolons_that_are_no_text() -> None:
    text = (
        "-- first; of all\nCREATE TEMPORARY VIEW a AS SELECT ';' FROM x;\n\n;"
        "CREATE TEMP VIEW `b` AS SELECT 1"
    )

    found = statements(text)

    assert [each.created_view for each in found] == [("a", "SELECT ';' FROM x"), ("b", "SELECT 1")]
    assert text[found[0].position :].startswith("CREATE")


def test_other_statements_create_no_view() -> None:
    assert statements("CREATE STREAMING TABLE a AS SELECT 1")[0].created_view is None

"""`ArrowBatch`: records as columns, for whatever speaks the Arrow PyCapsule interface.

`poll_arrow` and `read_topic` give them. They are decoded without Python objects for the rows;
pyarrow, pandas and polars are imported only by the methods that are named after them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from millstream.records.kernel import ArrowRecords

DtypeBackend: TypeAlias = Literal["pyarrow", "numpy"]
"""What the columns of a data frame are made of; the name is pandas' own for this choice."""
DTYPE_BACKENDS: Final[tuple[str, ...]] = get_args(DtypeBackend)


class ArrowBatch:
    """Records of one topic, as columns."""

    __slots__ = ("_records", "topic")

    def __init__(self, topic: str, records: ArrowRecords) -> None:
        self.topic = topic
        """The topic that all of them are from."""
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __arrow_c_schema__(self) -> object:
        """The schema as an "arrow_schema" capsule."""
        return self._records.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The schema and the rows as capsules. Other types are not offered."""
        return self._records.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an "arrow_array_stream" capsule."""
        return self._records.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> Any:
        """A `pyarrow.RecordBatch`, without a copy."""
        pyarrow: Any = imported("pyarrow")
        return pyarrow.record_batch(self)

    def to_pandas(self, *, dtype_backend: DtypeBackend = "pyarrow") -> Any:
        """A `pandas.DataFrame` whose columns stay in Arrow's memory (`pandas.ArrowDtype`).

        Pandas has no `.str` for bytes there: `astype("string[pyarrow]")` makes text of them. With
        `dtype_backend="numpy"` keys and values are columns of bytes objects, which cost several
        times as much as all the reading; only headers stay Arrow's then.
        """
        return to_pandas(self.to_arrow(), dtype_backend)

    def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        polars: Any = imported("polars")
        # Its own columns of bytes are views, and it makes them less quickly.
        return polars.DataFrame(self._records.with_views())

    def __repr__(self) -> str:
        return f"ArrowBatch(topic={self.topic!r}, rows={len(self)})"


def to_pandas(table: Any, dtype_backend: DtypeBackend) -> Any:
    """A data frame of a pyarrow batch or table.

    Lists of headers as Python objects would cost more than all the rest, most of them for nothing
    as most records have none; and looking for equal keys costs more than making them twice.
    """
    if dtype_backend not in DTYPE_BACKENDS:
        raise InvalidArgument(
            f"dtype_backend={dtype_backend!r}: must be one of {', '.join(DTYPE_BACKENDS)}"
        )
    pandas: Any = imported("pandas")
    pyarrow: Any = imported("pyarrow")
    is_arrow_backed = dtype_backend == "pyarrow"

    def dtype(kind: Any) -> Any:
        return pandas.ArrowDtype(kind) if is_arrow_backed or pyarrow.types.is_list(kind) else None

    return table.to_pandas(types_mapper=dtype, deduplicate_objects=False)


def imported(name: str) -> Any:
    """A package that a method is named after; an error that says what to do without it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} is not installed: pip install {name}, or use __arrow_c_stream__ with what is"
        ) from error

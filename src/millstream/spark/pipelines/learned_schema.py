"""Columns that are learnt from files once, and kept.

A stream must have the same columns whenever it starts, whatever files came since. So what Spark
finds in the files of the first run is written to a file of the pipeline's storage, and every later
run reads that. `files` asks for it where a definition says `schema: inferred`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

INFERRED: Final = "inferred"


def learned_schema(kept_in: str, read: Callable[[], Any], *, keeps: bool = True) -> StructType:
    """The columns that are kept, or those of the files that `read` reads, kept from now on.

    Without `keeps` they are not: that is for a look at a definition, which is no first run.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    if ":/" in kept_in and not Path(kept_in).is_absolute():
        raise InvalidArgument(
            "`schema: inferred` is kept in the pipeline's storage, which is no directory here: "
            f"{kept_in}; give the columns instead"
        )
    file = Path(kept_in)
    if file.exists():
        return StructType.fromJson(json.loads(file.read_text(encoding="utf-8")))
    try:
        found: StructType = read().schema
    except AnalysisException as error:
        raise InvalidArgument(
            "`schema: inferred` needs a file to learn the columns from, and there is none that "
            f"can be read: {str(error).partition(chr(10))[0]}. Put one there, or give the columns"
        ) from error
    if not keeps:
        return found
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(found.json(), encoding="utf-8")
    unfinished.replace(file)
    return found

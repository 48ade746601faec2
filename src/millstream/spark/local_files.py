"""An option of local sessions: the JVM sets permissions of files itself, without `chmod`.

PySpark comes without Hadoop's native library, and without it Hadoop runs `chmod` for every file
that it makes, and again for its checksum: four processes for the two checkpoint files of a
micro-batch, 16 of its 75 ms on two cores. Java can set permissions itself. Hadoop has no setting
for that, so the few lines that do it are given to the compiler which Spark has for the code that
it generates, and the result is put below the file system that the whole JVM shares.

A class of ours among Hadoop's is nothing that a user expects, so it is done only if `SETTING` asks
for it. `sessions` calls `set_permissions_directly` then, on local masters. Names, modes, checksums
and renames of files stay as they are; where it cannot be done, nothing is changed.
"""

from __future__ import annotations

import itertools
import logging
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

SETTING: Final = "spark.millstream.directPermissions"
"""Spark's setting that asks for it; the default is false."""

_HADOOP: Final = "org.apache.hadoop.fs"
_RAW: Final = f"{_HADOOP}.RawLocalFileSystem"
_DIRECT: Final = "millstream.DirectLocalFileSystem"
_numbers: Final = itertools.count(1)

# The body of a class that extends `_RAW`. Directories are left to `chmod`, which keeps their
# set-group-ID bit; so are sticky bits, of which java.nio knows nothing.
_BODY: Final = f"""
public void setPermission({_HADOOP}.Path path, {_HADOOP}.permission.FsPermission permission)
    throws java.io.IOException {{
  java.io.File file = pathToFile(path);
  if (permission.getStickyBit() || file.isDirectory()) {{
    super.setPermission(path, permission);
    return;
  }}
  java.nio.file.Files.setPosixFilePermissions(
      file.toPath(),
      java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString()));
}}

public void goBelow({_HADOOP}.LocalFileSystem checked) throws java.lang.Exception {{
  initialize(checked.getUri(), checked.getConf());
  java.lang.reflect.Field below = {_HADOOP}.FilterFileSystem.class.getDeclaredField("fs");
  below.setAccessible(true);
  below.set(checked, this);
}}
"""


def set_permissions_directly(spark: SparkSession) -> None:
    """Have the driver's JVM set permissions of local files itself instead of by processes."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # It has no types.

    if os.name != "posix":
        return
    try:
        _change(spark)
    # TypeError is py4j's, if a class is not there; a session of Spark Connect has no JVM at all.
    except (Py4JError, TypeError, AttributeError) as error:
        _logger.warning(
            "%s is not in effect, Spark starts a process for each local file that it makes: %s",
            SETTING,
            error,
        )


def _change(spark: Any) -> None:
    jvm = spark._jvm
    if jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable():
        return
    # The one that all of the JVM shares; a cast fails if `fs.file.impl` names another class.
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    if local.getRaw().getClass().getName() != _RAW:
        return
    evaluator = jvm.org.codehaus.janino.ClassBodyEvaluator()
    # py4j remembers methods by the names of classes. Of a second class with the name of the first
    # it would call the first one's, which Java refuses.
    evaluator.setClassName(f"{_DIRECT}{next(_numbers)}")
    evaluator.setExtendedClass(jvm.java.lang.Class.forName(_RAW))
    evaluator.createInstance(jvm.java.io.StringReader(_BODY)).goBelow(local)

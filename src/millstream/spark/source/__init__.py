"""Topics as Spark reads them: `spark.read` and `spark.readStream` of `format("millstream")`.

In reading order: `options` and `offsets` (what the user asks for), `columns` and `filters` (what
the query needs), `lookup` and `planning` (which offsets, for which task), `batch_reader`,
`stream_reader` and `stream_offsets` (the driver), `partition_reader` and `arrow_rows` (a task),
`data_loss` (what is said when records are gone).
"""

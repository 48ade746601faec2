"""Values to typed columns, in the source: `valueFormat` json, avro or protobuf.

The readers ask `decoder.make_decoder` once and pass every Arrow batch through it. The column
`value` becomes a struct; what cannot be decoded goes where `onDecodeError` says and fails no job
unless asked to. Nothing here reads a topic. `options` are read without pyarrow and PySpark, so that
a definition is checked before either is imported.
"""

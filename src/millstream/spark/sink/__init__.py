"""Topics as Spark writes them: `df.write` and `df.writeStream` of `format("millstream")`.

In reading order: `sink_options` (what the user asks for), `routing` (rows to topics), `writer` and
`stream_writer` (what Spark calls), `exactly_once` (a task's transaction), `markers` and
`marker_reading` (how a task knows what was written already).
"""

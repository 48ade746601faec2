"""PostgreSQL as a source and a sink of pipelines.

`source` and `sink` register with the pipelines. Below them: `connection` opens connections and
reads what a table is, `columns` maps types, `chunks` decides how far a table may be read without
missing a row, `staging` keeps what was read until Spark has it, `data_source` is the class that
Spark calls, `upsert` writes a batch once. psycopg is imported on first use only.
"""

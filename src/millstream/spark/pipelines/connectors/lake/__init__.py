"""Tables of files: Delta, Iceberg and Parquet, written batch by batch and kept compact.

A stream that writes a file for every batch ends with thousands of small ones, which are slow to
read. Each of these sinks therefore merges small files as it goes, and each notes the number of its
last batch in the same commit as the rows, so that a batch which Spark gives again is left out.
"""

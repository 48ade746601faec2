"""Records to and from Arrow's C data interface: `records` has the names, `schema` the columns.

`schema` is plain Python, and `millstream.records` uses it with and without the compiled modules.
"""

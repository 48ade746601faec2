"""The command line: one module per command family, on typer and rich.

`main` is the entry point. Everything a command knows about a cluster goes through `session`, a
small blocking client that the client library will replace. Nothing below imports this package.
"""

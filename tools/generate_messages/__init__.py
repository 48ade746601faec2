"""Writes `src/millstream/protocol/messages` from `schema/`: `python -m tools.generate_messages`.

`schema` reads and checks the TOML files, `classes` and `indexes` write Python, `target` compares
and replaces the files on disk. What it writes is committed; `tools.fresh` tells when it is stale.
"""

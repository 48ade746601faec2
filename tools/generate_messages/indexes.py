"""Writes what is known about all messages without importing them: names, API keys, record types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.generate_messages.classes import NOTICE

if TYPE_CHECKING:
    from tools.generate_messages.schema import SchemaFile

PACKAGE = "millstream.protocol.messages"


def package_source(files: list[SchemaFile]) -> str:
    """`messages/__init__.py`: every message by name, its module imported on first use."""
    lines = [
        '"""Every message of the protocol by name; its module is imported on first use.',
        "",
        "Structs inside messages are found in the message's own module.",
        f'{NOTICE}\n"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import TYPE_CHECKING",
        "",
        "if TYPE_CHECKING:",
    ]
    for file in files:
        lines += [
            f"    from {PACKAGE}.{file.module} import {message.name} as {message.name}"
            for message in file.messages
        ]
    lines += ["else:", "    from importlib import import_module", "", "    _MODULES = {"]
    for file in files:
        lines += [f'        "{message.name}": "{file.module}",' for message in file.messages]
    lines += [
        "    }",
        "",
        "    def __getattr__(name):",
        "        module = _MODULES.get(name)",
        "        if module is None:",
        '            raise AttributeError(f"there is no message called {name!r}")',
        '        value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)',
        "        return value",
        "",
        "    def __dir__():",
        "        return sorted({*globals(), *_MODULES})",
    ]
    return "\n".join(lines) + "\n"


def api_keys_source(files: list[SchemaFile]) -> str:
    """`messages/api_keys.py`: the enumeration of the APIs with what is known of each."""
    lines = [
        f'"""The API keys of the protocol. {NOTICE}"""',
        "",
        "from __future__ import annotations",
        "",
        "from millstream.protocol.api_traits import ApiTraits, describe",
        "",
        "",
        "class ApiKey(ApiTraits):",
        '    """Every API by its key."""',
        "",
    ]
    apis = [file for file in files if file.api]
    lines += [f"    {upper_snake(file.api)} = {file.key}" for file in apis]
    lines += ["", "", "describe(", "    ApiKey,", "    {"]
    lines += [f"        {file.key}: ({', '.join(_api_facts(file))})," for file in apis]
    return "\n".join([*lines, "    },", ")"]) + "\n"


def _api_facts(file: SchemaFile) -> list[str]:
    request = file.messages[0]
    facts = (
        file.api,
        request.versions,
        request.released,
        request.flexible,
        " ".join(file.listeners),
        " ".join(file.flags),
    )
    return [f'"{fact}"' for fact in facts]


def record_types_source(files: list[SchemaFile]) -> str:
    """`messages/record_types.py`: record type to message name, for each kind of record log."""
    lines = [
        f'"""Record types and the messages they stand for. {NOTICE}"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
    ]
    for constant, family, kind in (
        ("METADATA_RECORDS", "metadata", "metadata"),
        ("REMOTE_LOG_RECORDS", "remote_log", "metadata"),
        ("GROUP_KEYS", "group", "coordinator_key"),
        ("GROUP_VALUES", "group", "coordinator_value"),
        ("TRANSACTION_KEYS", "transaction", "coordinator_key"),
        ("TRANSACTION_VALUES", "transaction", "coordinator_value"),
        ("SHARE_KEYS", "share", "coordinator_key"),
        ("SHARE_VALUES", "share", "coordinator_value"),
    ):
        rows = sorted(
            (message.key, message.name)
            for file in files
            for message in file.messages
            if file.family == family and message.kind == kind and message.key is not None
        )
        lines += [f"{constant}: Final = {{", *(f'    {key}: "{name}",' for key, name in rows), "}"]
    return "\n".join(lines) + "\n"


def upper_snake(name: str) -> str:
    """`ListOffsets` as a constant: `LIST_OFFSETS`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()

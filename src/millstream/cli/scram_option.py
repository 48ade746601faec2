"""`storage format --add-scram`: the first users of a cluster, in the words of Apache Kafka's tool.

`SCRAM-SHA-256=[name=alice,iterations=8192,password=secret]`, or with `salt` and `saltedpassword`
in base64 instead of the password. What is kept cannot be turned back into one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Final

from millstream.cli.faults import UsageFault
from millstream.controller.scram_control import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    scram_credential_record,
)
from millstream.metadata.scram import ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.protocol.messages.security_records import UserScramCredentialRecord

SCRAM_SYNTAX: Final = "SCRAM-SHA-256=[name=USER,password=WORD] or SCRAM-SHA-512=[...]"
_OPTION: Final = re.compile(r"(?P<mechanism>[^=\[\]]+)=\[(?P<items>.*)\]", re.DOTALL)
_MECHANISMS: Final[Mapping[str, tuple[ScramMechanism, str]]] = {
    "SCRAM-SHA-256": (ScramMechanism.SCRAM_SHA_256, "sha256"),
    "SCRAM-SHA-512": (ScramMechanism.SCRAM_SHA_512, "sha512"),
}
_KEYS: Final = ("name", "password", "iterations", "salt", "saltedpassword")
_SALT_BYTES: Final = 32


def parse_scram(text: str) -> UserScramCredentialRecord:
    """The credential that an option asks for."""
    match = _OPTION.fullmatch(text.strip())
    # The option may have a password in it, so it is not repeated.
    if match is None:
        raise UsageFault(f"--add-scram: write it as {SCRAM_SYNTAX}")
    name = match["mechanism"].strip()
    if name not in _MECHANISMS:
        raise UsageFault(f"--add-scram {name}: must be {' or '.join(_MECHANISMS)}")
    mechanism, digest = _MECHANISMS[name]
    items = _items(match["items"], f"--add-scram {name}")
    where = f"--add-scram {name}"
    if not items.get("name"):
        raise UsageFault(f"{where}: a user needs 'name'")
    iterations = _iterations(items.get("iterations", str(ITERATIONS_MIN)), where)
    if ("password" in items) == ("saltedpassword" in items):
        raise UsageFault(f"{where}: one of 'password' and 'saltedpassword' is needed, not both")
    if "saltedpassword" in items and "salt" not in items:
        raise UsageFault(f"{where}: 'saltedpassword' needs the 'salt' that it was made with")
    salt = _decoded(items, "salt", where) or secrets.token_bytes(_SALT_BYTES)
    if "saltedpassword" in items:
        salted = _decoded(items, "saltedpassword", where)
        if len(salted) != hashlib.new(digest).digest_size:
            raise UsageFault(
                f"{where}: 'saltedpassword' has {len(salted)} bytes instead of "
                f"{hashlib.new(digest).digest_size}"
            )
    else:
        salted = hashlib.pbkdf2_hmac(digest, items["password"].encode(), salt, iterations)
    return scram_credential_record(items["name"], mechanism, salt, iterations, salted)


def _items(text: str, where: str) -> dict[str, str]:
    items: dict[str, str] = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = item.partition("=")
        if not equals or key not in _KEYS:
            raise UsageFault(f"{where}: {key!r} is none of {', '.join(_KEYS)}, each as KEY=VALUE")
        if key in items:
            raise UsageFault(f"{where}: {key!r} is given twice")
        is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
        items[key] = value[1:-1] if is_quoted else value
    return items


def _iterations(text: str, where: str) -> int:
    if text.isascii() and text.isdecimal() and ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        return int(text)
    raise UsageFault(
        f"{where}: 'iterations' must be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
    )


def _decoded(items: Mapping[str, str], key: str, where: str) -> bytes:
    try:
        return base64.b64decode(items.get(key, ""), validate=True)
    except binascii.Error as error:
        raise UsageFault(f"{where}: {key!r} is not base64") from error

"""A client of schema registries that speak Confluent's REST API: Confluent's, Karapace, Apicurio.

Serdes ask it for the id of a schema and for the schema of an id. Both are immutable, so each is
asked for once and remembered; a call that is not remembered blocks for an HTTP round trip. Safe to
share between threads. It never registers anything by itself.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.client.serialization.lookups import check_lookups
from millstream.errors import InvalidArgument, SchemaRegistryError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ANSWER_BYTES_MAX: Final = 64 << 20
_REMEMBERED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one imports: under which name, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema and what kind of text it is."""

    text: str
    kind: str = "AVRO"
    """AVRO, PROTOBUF or JSON."""
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in a registry: one version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema


class SchemaRegistryClient:
    """Asks a registry. Several addresses are tried in turn."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        username: str = "",
        password: str = "",
        token: str = "",
        timeout: float = 10.0,
        retries: int = 2,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._urls = _parse_urls(url)
        self._timeout = timeout
        self._retries = retries
        self._context = ssl_context
        self._headers = {"Accept": f"{MEDIA_TYPE}, application/json", "Content-Type": MEDIA_TYPE}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif username:
            pair = base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
            self._headers["Authorization"] = f"Basic {pair}"
        self._lock = threading.Lock()
        self._schemas: dict[tuple[int, bool], Schema] = {}
        self._ids: dict[tuple[str, Schema, bool], int] = {}

    # Schemas.

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The id of a schema; a new version of the subject if it was not there."""
        return self._id_of(
            (subject, schema, normalize), f"/subjects/{_quoted(subject)}/versions", schema
        )

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Where a schema is registered under a subject; SchemaRegistryError if it is not."""
        path = f"/subjects/{_quoted(subject)}{_normalized(normalize)}"
        return _registered(self._ask("POST", path, _body(schema)))

    def schema(self, schema_id: int, *, serialized: bool = False) -> Schema:
        """The schema that has an id.

        `serialized` asks for Protobuf as a file descriptor in base64 instead of the text of a
        `.proto` file; other kinds have no such form.
        """
        place = (schema_id, serialized)
        with self._lock:
            known = self._schemas.get(place)
        if known is None:
            form = "?format=serialized" if serialized else ""
            known = _schema(self._ask("GET", f"/schemas/ids/{schema_id}{form}"))
            self._remember(self._schemas, place, known)
        return known

    def version(self, subject: str, version: int | str = "latest") -> RegisteredSchema:
        """One version of a subject, the latest if none is named. Asked for each time."""
        return _registered(self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}"))

    def subjects(self) -> list[str]:
        """All subjects."""
        return [str(each) for each in self._ask("GET", "/subjects")]

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject."""
        return [int(each) for each in self._ask("GET", f"/subjects/{_quoted(subject)}/versions")]

    def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject; its schemas can still be read by id unless it is permanent."""
        query = "?permanent=true" if permanent else ""
        gone = self._ask("DELETE", f"/subjects/{_quoted(subject)}{query}")
        with self._lock:
            self._ids = {each: value for each, value in self._ids.items() if each[0] != subject}
        return [int(each) for each in gone]

    # Compatibility.

    def is_compatible(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        """Whether a schema could become the next version of a subject."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/{version}"
        return bool(self._ask("POST", path, _body(schema))["is_compatible"])

    def compatibility(self, subject: str = "") -> str:
        """The level that new versions must keep: of a subject, or of all."""
        answer = self._ask("GET", f"/config{_of_subject(subject)}")
        return str(answer.get("compatibilityLevel") or answer["compatibility"])

    def set_compatibility(self, level: str, subject: str = "") -> None:
        """Set the level: BACKWARD, FORWARD, FULL, their _TRANSITIVE forms, or NONE."""
        self._ask("PUT", f"/config{_of_subject(subject)}", {"compatibility": level})

    # HTTP.

    def _id_of(self, place: tuple[str, Schema, bool], path: str, schema: Schema) -> int:
        with self._lock:
            known = self._ids.get(place)
        if known is None:
            answer = self._ask("POST", path + _normalized(place[2]), _body(schema))
            known = int(answer["id"])
            self._remember(self._ids, place, known)
        return known

    def _remember(self, memory: dict[Any, Any], key: object, value: object) -> None:
        with self._lock:
            if len(memory) >= _REMEMBERED_MAX:
                memory.pop(next(iter(memory)))
            memory[key] = value

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """One call; the next address, and then all of them again, while nobody answers."""
        check_lookups()
        failure = SchemaRegistryError("no address was given")
        for _ in range(self._retries + 1):
            for url in self._urls:
                try:
                    return self._ask_one(url, method, path, body)
                except SchemaRegistryError as error:
                    if not error.retriable_elsewhere:
                        raise
                    failure = error
        raise failure

    def _ask_one(self, url: str, method: str, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # _parse_urls admits http and https only.
            url + path, data=data, headers=self._headers, method=method
        )
        try:
            with urllib.request.urlopen(
                request, timeout=self._timeout, context=self._context
            ) as answer:
                return json.loads(answer.read(_ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            raise _refusal(error, url, method, path) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise SchemaRegistryError(
                f"schema registry {url} does not answer {method} {path}: {reason}",
                retriable_elsewhere=True,
            ) from error


def _parse_urls(url: str | Sequence[str]) -> list[str]:
    given = url.split(",") if isinstance(url, str) else list(url)
    urls = [each.strip().rstrip("/") for each in given if each.strip()]
    for each in urls:
        if urllib.parse.urlsplit(each).scheme not in ("http", "https"):
            raise InvalidArgument(
                f"schema registry {each!r}: write http://host:port or https://host:port"
            )
    if not urls:
        raise InvalidArgument("no address of a schema registry; write http://host:port")
    return urls


def _refusal(
    error: urllib.error.HTTPError, url: str, method: str, path: str
) -> SchemaRegistryError:
    try:
        answer = json.loads(error.read(_ANSWER_BYTES_MAX))
        code, text = int(answer["error_code"]), str(answer["message"])
    except (ValueError, KeyError, TypeError):
        code, text = error.code, str(error.reason)
    return SchemaRegistryError(
        f"schema registry {url} refuses {method} {path}: {text} ({code})",
        code=code,
        retriable_elsewhere=error.code >= 500,
    )


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    return body


def _schema(answer: dict[str, Any]) -> Schema:
    references = tuple(
        Reference(each["name"], each["subject"], int(each["version"]))
        for each in answer.get("references") or ()
    )
    return Schema(answer["schema"], answer.get("schemaType") or "AVRO", references)


def _registered(answer: dict[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(
        answer["subject"], int(answer["version"]), int(answer["id"]), _schema(answer)
    )


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _normalized(normalize: bool) -> str:
    return "?normalize=true" if normalize else ""


def _of_subject(subject: str) -> str:
    return f"/{_quoted(subject)}" if subject else ""

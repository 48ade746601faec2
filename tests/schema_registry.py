"""A schema registry in memory that answers over HTTP: enough of the REST API for tests.

As the real ones do, it takes Protobuf as a descriptor in base64, answers with the text of a
`.proto` file unless `format=serialized` is asked for, and forgets the file's name; it leaves out
`schemaType` of Avro and `references` where there are none, and refuses references to nothing. It
compares texts, checks no compatibility and parses no `.proto` text. Faults can be asked for.
"""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from google.protobuf import descriptor_pb2

from tests.proto_text import proto_text

if TYPE_CHECKING:
    from collections.abc import Iterator


class RegistryFault(Exception):
    """An answer with an error code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Registry:
    """Subjects and schemas, and what was asked."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.levels: dict[str, str] = {"": "BACKWARD"}
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        self.failures_left = 0
        self.url = ""

    def answer(self, method: str, path: str, body: dict[str, Any], form: str = "") -> Any:
        """Route one request, unless it was asked to fail."""
        if self.failures_left:
            self.failures_left -= 1
            raise RegistryFault(503, 50003, "Error while forwarding the request")
        match [method, *[unquote(part) for part in path.strip("/").split("/")]]:
            case ["GET", "subjects"]:
                return sorted(self.subjects)
            case ["POST", "subjects", subject, "versions"]:
                return {"id": self._register(subject, body)}
            case ["POST", "subjects", subject]:
                return self._entry(subject, self._version_of(subject, body))
            case ["GET", "subjects", subject, "versions"]:
                return list(range(1, len(self._versions(subject)) + 1))
            case ["GET", "subjects", subject, "versions", version]:
                last = len(self._versions(subject))
                number = last if version in ("latest", "-1") else int(version)
                return self._entry(subject, number, form)
            case ["DELETE", "subjects", subject]:
                return list(range(1, len(self.subjects.pop(subject)) + 1))
            case ["GET", "schemas", "ids", schema_id]:
                return self._schema(int(schema_id), form)
            case ["POST", "compatibility", "subjects", _, "versions", _]:
                return {"is_compatible": "compatible" in body["schema"]}
            case ["GET", "config", *subject]:
                return {"compatibilityLevel": self.levels["".join(subject)]}
            case ["PUT", "config", *subject]:
                self.levels["".join(subject)] = body["compatibility"]
                return body
        raise RegistryFault(404, 404, "HTTP 404 Not Found")

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        schema = _stored(body)
        for each in schema["references"]:
            try:
                self._entry(each["subject"], each["version"])
            except RegistryFault as missing:
                raise RegistryFault(422, 42201, f"Invalid schema {body}") from missing
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def _version_of(self, subject: str, body: dict[str, Any]) -> int:
        versions = self._versions(subject)
        schema = _stored(body)
        for version, schema_id in enumerate(versions, 1):
            if self.schemas[schema_id - 1] == schema:
                return version
        raise RegistryFault(404, 40403, "Schema not found")

    def _versions(self, subject: str) -> list[int]:
        if subject not in self.subjects:
            raise RegistryFault(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _entry(self, subject: str, version: int, form: str = "") -> dict[str, Any]:
        versions = self._versions(subject)
        if not 0 < version <= len(versions):
            raise RegistryFault(404, 40402, "Version not found")
        schema_id = versions[version - 1]
        place = {"subject": subject, "version": version, "id": schema_id}
        return place | self._schema(schema_id, form)

    def _schema(self, schema_id: int, form: str = "") -> dict[str, Any]:
        if not 0 < schema_id <= len(self.schemas):
            raise RegistryFault(404, 40403, "Schema not found")
        stored = self.schemas[schema_id - 1]
        answer = {"schema": stored["serialized" if form == "serialized" else "schema"]}
        if stored["schemaType"] != "AVRO":
            answer["schemaType"] = stored["schemaType"]
        if stored["references"]:
            answer["references"] = stored["references"]
        return answer


def _stored(body: dict[str, Any]) -> dict[str, Any]:
    kind = body.get("schemaType") or "AVRO"
    text = serialized = body["schema"]
    if kind == "PROTOBUF":
        try:
            content = base64.b64decode(text, validate=True)
            file = descriptor_pb2.FileDescriptorProto.FromString(content)
        except Exception as error:
            raise RegistryFault(422, 42201, f"Invalid schema {body}") from error
        file.name = "default"
        text = proto_text(file)
        serialized = base64.b64encode(file.SerializeToString()).decode()
    return {
        "schema": text,
        "serialized": serialized,
        "schemaType": kind,
        "references": body.get("references") or [],
    }


@contextmanager
def running_registry(given: Registry | None = None) -> Iterator[Registry]:
    """A registry that answers at `.url`."""
    registry = given or Registry()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            asked = urlsplit(self.path)
            form = parse_qs(asked.query).get("format", [""])[0]
            registry.requests.append(f"{self.command} {self.path}")
            registry.authorizations.add(self.headers.get("Authorization"))
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            try:
                status, answer = 200, registry.answer(self.command, asked.path, body, form)
            except RegistryFault as fault:
                status, answer = fault.status, {"error_code": fault.code, "message": str(fault)}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()

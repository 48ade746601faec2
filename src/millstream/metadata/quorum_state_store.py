"""The `quorum-state` file: what a replica must remember of elections, in Kafka's JSON.

Raft's driver writes it before it answers or asks for a vote. With kraft.version 0 it has data
version 0, which also lists the voters; from 1 on it has data version 1, with the directory of the
candidate that was voted for.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import KafkaStorageError
from millstream.metadata.stalls import stalls
from millstream.raft.effects import ElectionState
from millstream.raft.voters import KRAFT_VERSION_DYNAMIC, ReplicaKey
from millstream.storage.filesystem import write_atomically
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

QUORUM_STATE_FILE: Final = "quorum-state"
_NOBODY: Final = -1


class FileQuorumStateStore:
    """The file in the directory of the metadata log."""

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._path = f"{directory}/{QUORUM_STATE_FILE}"

    def read(self) -> ElectionState | None:
        """What was written last; None before the first time."""
        try:
            data = self._filesystem.read_bytes(self._path)
        except FileNotFoundError:
            return None
        try:
            return _parse(json.loads(data))
        except (ValueError, KeyError, TypeError) as error:
            # To begin anew would be to vote twice in one epoch.
            raise KafkaStorageError(
                f"{self._path} is corrupt ({error}): restore it, or remove this replica from the "
                "quorum and format its directory"
            ) from error

    def write(
        self, election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
    ) -> None:
        """Replace it; durable on return."""
        content = json.dumps(_render(election, kraft_version, voter_ids), separators=(",", ":"))
        with stalls(self._path, "writing"):
            write_atomically(self._filesystem, self._path, content.encode())


def _parse(found: dict[str, Any]) -> ElectionState:
    version = found["data_version"]
    if version not in (0, 1):
        raise ValueError(f"data_version {version} is not known")
    leader_id, voted_id = int(found["leaderId"]), int(found["votedId"])
    voted_key = None
    if voted_id != _NOBODY:
        directory_id = Uuid.parse(found["votedDirectoryId"]) if version else Uuid.ZERO
        voted_key = ReplicaKey(voted_id, directory_id)
    return ElectionState(
        int(found["leaderEpoch"]), None if leader_id == _NOBODY else leader_id, voted_key
    )


def _render(
    election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
) -> dict[str, Any]:
    voted = election.voted_key or ReplicaKey(_NOBODY)
    common = {
        "leaderId": _NOBODY if election.leader_id is None else election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": voted.id,
    }
    if kraft_version >= KRAFT_VERSION_DYNAMIC:
        return {**common, "votedDirectoryId": str(voted.directory_id), "data_version": 1}
    voters = [{"voterId": voter_id} for voter_id in voter_ids]
    return {
        "clusterId": "",
        **common,
        "appliedOffset": 0,
        "currentVoters": voters,
        "data_version": 0,
    }

"""The text of the `quorum-state` file: Kafka's QuorumStateData as JSON.

Version 0 belongs to kraft.version 0 and knows no directory ids; version 1 to all later ones.
A `QuorumStateStore` writes it aside, syncs and renames.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidArgument
from millstream.raft.effects import ElectionState
from millstream.raft.voters import KRAFT_VERSION_DYNAMIC, ReplicaKey
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_NAME = "quorum-state"
"""Its name in the directory of the metadata partition."""

_NOBODY = -1


def encode_quorum_state(
    election: ElectionState, kraft_version: int, voter_ids: Sequence[int]
) -> bytes:
    """The file's content."""
    voted = election.voted_key
    fields: dict[str, Any] = {
        "leaderId": _NOBODY if election.leader_id is None else election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": _NOBODY if voted is None else voted.id,
    }
    if kraft_version >= KRAFT_VERSION_DYNAMIC:
        fields["votedDirectoryId"] = str(Uuid.ZERO if voted is None else voted.directory_id)
        fields["data_version"] = 1
    else:
        voters = [{"voterId": voter_id} for voter_id in voter_ids]
        fields = {"clusterId": "", **fields, "appliedOffset": 0, "currentVoters": voters}
        fields["data_version"] = 0
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> ElectionState:
    """Read it back; InvalidArgument if it is something else."""
    try:
        fields = json.loads(data)
        version = _integer(fields, "data_version")
        if version not in (0, 1):
            raise ValueError(f"data_version {version} is not known")  # noqa: TRY301
        leader_id, voted_id = _integer(fields, "leaderId"), _integer(fields, "votedId")
        voted = None
        if voted_id != _NOBODY:
            directory_id = Uuid.parse(fields["votedDirectoryId"]) if version else Uuid.ZERO
            voted = ReplicaKey(voted_id, directory_id)
        return ElectionState(
            _integer(fields, "leaderEpoch"), None if leader_id == _NOBODY else leader_id, voted
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise InvalidArgument(f"the {FILE_NAME} file is damaged: {exc!r}") from exc


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}")
    return value

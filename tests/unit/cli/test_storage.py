"""`millstream storage`: directories are taken once, and whose they are is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli.faults import ExitCode
from millstream.cli.main import main
from millstream.metadata.bootstrap import decode_bootstrap
from millstream.protocol.messages import FeatureLevelRecord, UserScramCredentialRecord
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["storage", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def found(result: tuple[int, str, str]) -> Any:
    return json.loads(result[1])


def test_a_random_uuid_is_one(run: Run) -> None:
    assert Uuid.parse(run("random-uuid")[1].strip())
    assert Uuid.parse(found(run("random-uuid", "--json"))["uuid"])


def test_a_directory_is_formatted_once(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    cluster_id = run("random-uuid")[1].strip()

    code, out, _ = run("format", "--cluster-id", cluster_id, "--data", data)
    assert (code, cluster_id in out) == (ExitCode.OK, True)

    code, _, err = run("format", "--cluster-id", cluster_id, "--data", data)
    assert code == ExitCode.FAILED
    assert "--ignore-formatted" in err
    again = run("format", "--cluster-id", cluster_id, "--data", data, "--ignore-formatted")
    assert again[:2] == (ExitCode.OK, "nothing to do: every directory is formatted\n")


def test_a_new_disk_joins_those_that_are_there(run: Run, tmp_path: Path) -> None:
    cluster_id = found(run("format", "--data", tmp_path / "a", "--json"))["cluster_id"]

    both = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    added = found(run("format", "--data", both, "--ignore-formatted", "--json"))

    assert added == {"cluster_id": cluster_id, "formatted": [str(tmp_path / "b")]}


def test_the_features_of_the_cluster_can_be_chosen(run: Run, tmp_path: Path) -> None:
    options = ("--release-version", "4.0", "--feature", "group.version=0")
    assert run("format", "--data", tmp_path / "d", *options)[0] == ExitCode.OK

    data = (tmp_path / "d" / "bootstrap.checkpoint").read_bytes()
    levels = {
        record.name: record.feature_level
        for record in decode_bootstrap(data, "").records
        if isinstance(record, FeatureLevelRecord)
    }
    assert levels["metadata.version"] == 25
    assert "group.version" not in levels


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--cluster-id", "short"), "random-uuid"),
        (("--release-version", "9.9"), "known are"),
        (("--feature", "no.version=1"), "no.version"),
        (("--feature", "share.version"), "name=level"),
        (("--feature", "share.version=x"), "name=level"),
        (("--set", "node.id=x"), "node.id"),
        (("--config", "/no/such/file"), "/no/such/file"),
    ],
)
def test_wrong_options_format_nothing(
    run: Run, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    code, _, err = run("format", "--data", tmp_path / "d", *options)

    assert code != ExitCode.OK
    assert says in err
    assert not (tmp_path / "d" / "meta.properties").exists()


def test_info_shows_whose_directories_are(run: Run, tmp_path: Path) -> None:
    cluster_id = found(run("format", "--data", tmp_path / "d", "--json"))["cluster_id"]

    assert cluster_id in run("info", "--data", tmp_path / "d")[1]
    shown = found(run("info", "--data", tmp_path / "d", "--json"))
    assert shown["problem"] is None
    assert shown["directories"][0]["cluster_id"] == cluster_id
    assert shown["directories"][0]["metadata"] is True


def test_info_tells_what_a_start_would_fail_on(run: Run, tmp_path: Path) -> None:
    code, _, err = run("info", "--data", tmp_path / "d")
    assert code == ExitCode.FAILED
    assert "not formatted" in err
    assert "not formatted" in found(run("info", "--data", tmp_path / "d", "--json"))["problem"]

    run("format", "--data", tmp_path / "d")
    assert "belongs to node 1" in run("info", "--data", tmp_path / "d", "--set", "node.id=2")[2]

    run("format", "--data", tmp_path / "e")
    both = f"{tmp_path / 'd'},{tmp_path / 'e'}"
    code, _, err = run("info", "--data", both)
    assert code == ExitCode.FAILED
    assert "several clusters" in err

    (tmp_path / "d" / "meta.properties").write_text("version=0\nbroker.id=1\n")
    assert "names its cluster" in run("info", "--data", tmp_path / "d")[2]


SALT = base64.b64encode(b"salt of the user").decode()
SALTED = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt of the user", 8192)


def scram_users(directory: Path) -> list[UserScramCredentialRecord]:
    data = (directory / "bootstrap.checkpoint").read_bytes()
    found = decode_bootstrap(data, "").records
    return [each for each in found if isinstance(each, UserScramCredentialRecord)]


def test_first_users_are_kept_without_their_passwords(run: Run, tmp_path: Path) -> None:
    by_password = f"SCRAM-SHA-256=[name=alice,iterations=8192,salt={SALT},password=secret]"
    salted = base64.b64encode(SALTED).decode()
    by_salted = f'SCRAM-SHA-256=[name=bob,iterations=8192,salt="{SALT}",saltedpassword="{salted}"]'
    by_default = "SCRAM-SHA-512=[name=alice,password=other]"

    options = [item for each in (by_password, by_salted, by_default) for item in ("-S", each)]
    assert run("format", "--data", tmp_path / "d", *options)[0] == ExitCode.OK

    alice, bob, again = scram_users(tmp_path / "d")
    assert (alice.name, bob.name, again.name) == ("alice", "bob", "alice")
    assert (alice.mechanism, again.mechanism, again.iterations) == (1, 2, 4096)
    assert alice.stored_key == bob.stored_key
    client_key = hmac.digest(SALTED, b"Client Key", "sha256")
    assert bytes(alice.stored_key) == hashlib.sha256(client_key).digest()
    assert bytes(alice.server_key) == hmac.digest(SALTED, b"Server Key", "sha256")
    assert b"secret" not in (tmp_path / "d" / "bootstrap.checkpoint").read_bytes()


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("foo", "write it as SCRAM-SHA-256=[name=USER"),
        ("SCRAM-SHA-256=[name=a,password=b", "write it as"),
        ("SCRAM-SHA-999=[name=a,password=b]", "must be SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=b]", "needs 'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' and 'saltedpassword'"),
        (f"SCRAM-SHA-256=[name=a,password=b,saltedpassword={SALT}]", "not both"),
        (f"SCRAM-SHA-256=[name=a,saltedpassword={SALT}]", "needs the 'salt'"),
        (f"SCRAM-SHA-256=[name=a,salt={SALT},saltedpassword={SALT}]", "16 bytes instead of 32"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=1]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=x]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=b,foo=1]", "'foo' is none of name"),
        ("SCRAM-SHA-256=[name=a,password=b,name=c]", "'name' is given twice"),
        ("SCRAM-SHA-256=[name=a,password=b,salt=!!]", "'salt' is not base64"),
    ],
)
def test_a_first_user_that_cannot_be(run: Run, tmp_path: Path, option: str, says: str) -> None:
    code, _, err = run("format", "--data", tmp_path / "d", "--add-scram", option)

    assert (code, says in err) == (ExitCode.USAGE, True)
    assert not (tmp_path / "d").exists()


def test_a_first_user_needs_a_release_that_knows_users(run: Run, tmp_path: Path) -> None:
    user = ("--add-scram", "SCRAM-SHA-256=[name=a,password=b]")

    old = run("format", "--data", tmp_path / "d", "--release-version", "3.4", *user)
    twice = run("format", "--data", tmp_path / "d", *user, *user)

    assert (old[0], "3.5-IV2 or higher" in old[2]) == (ExitCode.USAGE, True)
    assert (twice[0], "given twice" in twice[2]) == (ExitCode.USAGE, True)

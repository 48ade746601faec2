"""What promises protection is refused; what does not is not."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidConfig
from millstream.node.config import node_config

STOCK_MAP = (
    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (
            {"listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9094"},
            "listeners=SASL_PLAINTEXT://:9094: must be PLAINTEXT and not SASL_PLAINTEXT: ",
        ),
        ({"listeners": "SSL://:9092"}, "listeners=SSL://:9092: must be PLAINTEXT and not SSL: "),
        (
            {
                "listeners": "PLAINTEXT://:9092,OUTSIDE://:9094",
                "listener.security.protocol.map": STOCK_MAP + ",OUTSIDE:SASL_SSL",
            },
            "listeners=OUTSIDE://:9094: must be PLAINTEXT and not SASL_SSL: ",
        ),
        (
            {
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
            },
            "listeners=CONTROLLER://:9093: must be PLAINTEXT and not SSL: ",
        ),
        (
            {"controller.listener.names": "CONTROLLER,SSL"},
            "controller.listener.names=SSL: must be PLAINTEXT and not SSL: ",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol=SSL: must be PLAINTEXT: ",
        ),
        (
            {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
            "authorizer.class.name=...: must be left out: ",
        ),
        ({"super.users": "User:admin"}, "super.users=...: must be left out: "),
        ({"ssl.keystore.location": "/k.jks"}, "ssl.keystore.location=...: must be left out: "),
        ({"ssl.client.auth": "required"}, "ssl.client.auth=...: must be left out: "),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms=...: must be left out: "),
        (
            {"listener.name.outside.plain.sasl.jaas.config": "x"},
            "listener.name.outside.plain.sasl.jaas.config=...: must be left out: ",
        ),
    ],
)
def test_what_promises_protection_is_refused(given: dict[str, str], fault: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        node_config(given)

    assert str(caught.value).startswith(f"invalid setting {fault}")
    assert "this version has no TLS, SASL or ACLs" in str(caught.value)


def test_it_is_listed_with_the_other_faults_and_no_secret_is_shown() -> None:
    with pytest.raises(InvalidConfig) as caught:
        node_config(
            {
                "num.partitions": "0",
                "listeners": "SSL://:9092",
                "ssl.keystore.password": "very-secret",
            }
        )

    text = str(caught.value)
    assert text.startswith("3 invalid settings:")
    assert "very-secret" not in text


def test_a_variable_of_the_environment_is_refused_as_well() -> None:
    with pytest.raises(InvalidConfig, match=r"MILLSTREAM_AUTHORIZER_CLASS_NAME=\.\.\.: must be"):
        node_config({}, ["MILLSTREAM_AUTHORIZER_CLASS_NAME"])


def test_what_protects_nobody_by_itself_is_taken() -> None:
    """As the files that come with Apache Kafka, and those derived from them, have it."""
    config = node_config(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": STOCK_MAP,
            "authorizer.class.name": "",
            "ssl.client.auth": "none",
            "ssl.endpoint.identification.algorithm": "HTTPS",
            "ssl.protocol": "TLSv1.3",
            "sasl.kerberos.service.name": "kafka",
            "allow.everyone.if.no.acl.found": "true",
        }
    )

    assert "ssl.protocol has no effect here" in config.warnings
    assert "allow.everyone.if.no.acl.found has no effect here" in config.warnings

"""The client's settings: where they come from, what is refused, and that secrets stay secret."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from drainer.errors import UsageError
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import KIB, MIB, ClientSettings
from drainer.text.secret import is_secret, redact


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def test_a_file_is_read_and_overrides_win_over_it(properties: Path) -> None:
    properties.write_text(
        "# how we connect\n! really\n\nbootstrap.servers = a:1,b:2\nclient.id=from-file\n"
        "ssl.ca.location=\n"
    )
    settings = ClientSettings.load(None, properties, ["client.id=mine", "debug=cgrp"])
    assert settings.bootstrap_servers == "a:1,b:2"
    assert settings.properties["client.id"] == "mine"
    assert settings.properties["debug"] == "cgrp"
    assert ClientSettings.load("c:3", properties).bootstrap_servers == "c:3"


def test_without_bootstrap_servers_the_hint_names_every_way_to_give_them() -> None:
    with pytest.raises(UsageError, match="no bootstrap servers") as raised:
        ClientSettings.load()
    for way in ("-b", "DRAINER_BOOTSTRAP_SERVER", "bootstrap.servers"):
        assert way in (raised.value.hint or "")


def test_a_line_that_is_no_property_is_named_but_not_shown(properties: Path) -> None:
    for line, error in (
        ("hunter2 hunter2", r"client\.properties:3"),
        ("batch.sise=4", "batch.sise"),
    ):
        properties.write_text(f"client.id=x\n\n{line}\n")
        with pytest.raises(UsageError, match=error) as raised:
            ClientSettings.load("a:1", properties)
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("security.protocol=TSL", "security.protocol"),
        ("session.timeout.ms=soon", "session.timeout.ms"),
        ("on_commit=x", "on_commit"),
        ("isolation.level=serializable", "isolation.level"),
        ("group.id=x", "you can't set group.id: "),
        ("enable.auto.commit=x", "you can't set enable.auto.commit: "),
        ("group.protocol=x", "you can't set group.protocol: "),
        ("logger=x", "you can't set logger: "),
        ("default.topic.config=x", "you can't set default.topic.config: "),
        ("topic.auto.offset.reset=earliest", "can't set auto.offset.reset: a drain never jumps"),
        ("plugin.library.paths=/tmp/evil", "plugin.library.paths names"),
        ("ssl.engine.location=/tmp/evil.so", "ssl.engine.location names"),
        ("ssl.providers=default,../../tmp/evil", "ssl.providers names"),
        ("sasl.kerberos.kinit.cmd=touch /tmp/evil", "sasl.kerberos.kinit.cmd is"),
        ("sasl.kerberos.principal=$(touch /tmp/evil)", "sasl.kerberos.principal is part"),
        ('sasl.kerberos.keytab=x"; touch /tmp/evil; "', "sasl.kerberos.keytab is part"),
    ],
)
def test_a_property_that_a_drain_can_not_have_is_refused_from_a_file_and_a_command_line(
    properties: Path, line: str, error: str
) -> None:
    properties.write_text(f"{line}\n")
    for file, overrides in ((properties, []), (None, [line])):
        with pytest.raises(UsageError, match=re.escape(error)):
            ClientSettings.load("a:1", file, overrides)


@pytest.mark.parametrize(
    ("pair", "char"),
    [
        ("plugin.library.paths\0=/tmp/evil", "U+0000"),
        ("plugin.library.paths\0x=/tmp/evil", "U+0000"),
        ("client.id=a\0b", "U+0000"),
        ("client.id=a\x1b[2J", "U+001B"),
        ("client.id=a\tb", "U+0009"),
        ("client.id=a\x0bb", "U+000B"),
        ("client.id=a\x85b", "U+0085"),
        ("ssl.ca.pem=a\0b", "U+0000"),
    ],
)
def test_control_characters_are_refused_with_their_place(
    properties: Path, pair: str, char: str
) -> None:
    """librdkafka reads a name up to a NUL: this one would load a library."""
    properties.write_text(f"# mine\n{pair}\n")
    with pytest.raises(
        UsageError, match=rf"client\.properties:2 has .* {re.escape(char)}$"
    ) as raised:
        ClientSettings.load("a:1", properties)
    assert raised.value.hint
    with pytest.raises(UsageError, match=r"a property on the command line has the control"):
        ClientSettings.load("a:1", None, [pair])
    with pytest.raises(UsageError, match="bootstrap servers has the control character"):
        ClientSettings.load("a:1\0,b:2")


def test_a_topic_property_has_one_name() -> None:
    assert ClientSettings.load("a:1", None, ["topic.acks=0"]).properties == {"acks": "0"}
    refresh = ["topic.metadata.refresh.interval.ms=9000"]  # that is its name
    settings = ClientSettings.load("a:1", None, refresh)
    settings.consumer({**settings.properties, "group.id": "g"}).close()


def test_a_mounted_secret_a_certificate_and_a_file_of_windows_have_line_ends(
    properties: Path,
) -> None:
    assert ClientSettings.load("a:1\n").bootstrap_servers == "a:1"
    pem = "-----BEGIN CERTIFICATE-----\r\nMIIB\n-----END CERTIFICATE-----"
    settings = ClientSettings.load("a:1", None, [f"ssl.ca.pem={pem}"])
    assert settings.properties["ssl.ca.pem"] == pem
    properties.write_bytes(b"client.id=windows\r\ndebug=cgrp\r\n")
    assert ClientSettings.load("a:1", properties).properties["client.id"] == "windows"


def test_a_plain_principal_and_keytab_are_taken() -> None:
    login = ("principal=drainer/host-1.example@EXAMPLE.COM", "keytab=/etc/drainer/my_key.tab")
    ClientSettings.load("a:1", None, [f"sasl.kerberos.{each}" for each in login])


def test_what_java_clients_know_is_refused_in_one_error_with_a_way_out_for_each(
    properties: Path,
) -> None:
    refused = {
        "group.id=x": "Remove group.id.",
        "auto.offset.reset=latest": "Remove auto.offset.reset.",
        'sasl.jaas.config=x password="hush";': "Replace sasl.jaas.config with sasl.username",
        "ssl.truststore.location=/a.jks": "Replace ssl.truststore.location with ssl.ca.location",
        "value.deserializer=org.x.String": "Replace value.deserializer with --value-format.",
        "max.poll.interval.ms=1": "Remove max.poll.interval.ms.",
        "default.api.timeout.ms=60000": "librdkafka's CONFIGURATION.md, and remove others.",
    }
    properties.write_text("\n".join(["client.id=x", *refused, "acks=all"]))
    with pytest.raises(UsageError) as raised:
        ClientSettings.load("a:1", properties)
    text = f"{raised.value} {raised.value.hint}"
    assert [line for line in refused if line.partition("=")[0] not in text] == []
    assert [way for way in refused.values() if way not in (raised.value.hint or "")] == []
    assert "hush" not in text


def test_a_file_may_begin_with_a_byte_order_mark(properties: Path) -> None:
    for lines in ("bootstrap.servers=a:1\r\nclient.id=x", "# mine\nbootstrap.servers=a:1"):
        properties.write_bytes(lines.encode("utf-8-sig"))
        assert ClientSettings.load(None, properties).bootstrap_servers == "a:1"


def test_secrets_are_never_shown(properties: Path) -> None:
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=ann\n"
        "sasl.password=hush-1\nssl.key.password=hush-2\n"
    )
    settings = ClientSettings.load("a:1", properties)
    for text in (repr(settings), str(settings), f"{settings}", redact("x hush-1 hush-2")):
        assert "hush" not in text
    assert "ann" in repr(settings)


def test_a_rejected_secret_is_not_shown_either() -> None:
    with pytest.raises(UsageError, match=r"ssl\.key\.pem") as raised:
        ClientSettings.load("a:1", None, ["security.protocol=SSL", "ssl.key.pem=hush-3"])
    assert "hush" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_properties_of_extensions_are_kept_from_librdkafka_and_as_secret(properties: Path) -> None:
    properties.write_text(
        "client.id=mine\nhttp.token=hush-1\nhttp.user=ann\nschema.registry.url=http://r:8081\n"
        "schema.registry.basic.auth.user.info=ann:hush-2\n"
    )
    settings = ClientSettings.load("a:1", properties)

    assert settings.properties == {"client.id": "mine"}
    assert settings.extension("http.") == {"token": "hush-1", "user": "ann"}
    assert settings.extension("schema.registry.")["basic.auth.user.info"] == "ann:hush-2"
    for text in (repr(settings), redact("hush-1 ann:hush-2, or hush-2 alone")):
        assert "hush" not in text
    assert "http://r:8081" in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings  # as it comes to Spark's tasks


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("ssl.key.pem", True),
        ("sasl.oauthbearer.client.secret", True),
        ("sasl.oauthbearer.config", True),
        ("ssl.keystore.password", True),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("schema.registry.basic.auth.user.info", True),
        ("sasl.username", False),
        ("ssl.ca.location", False),
    ],
)
def test_secret_properties_are_known_by_name(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_read_committed_is_the_default() -> None:
    assert ClientSettings.load("a:1").isolation == "read_committed"
    level = ["isolation.level=read_uncommitted"]
    assert ClientSettings.load("a:1", None, level).isolation == "read_uncommitted"


@pytest.mark.parametrize("buffer", [MIB, 64 * MIB, 256 * MIB, 4096 * MIB])
def test_what_comes_at_once_fits_into_the_buffer_however_well_it_was_compressed(
    buffer: int,
) -> None:
    """gzip makes at most 1,032 bytes of one, and librdkafka decompresses all that comes."""
    settings = ClientSettings.load("a:1")
    conf = settings.fetch_conf(ClientLog(), "g", buffer // 4)
    least = 32 * 1032 * KIB  # smaller fetches would be slow
    for name in ("fetch.max.bytes", "max.partition.fetch.bytes", "message.max.bytes"):
        assert conf[name] * 1032 <= max(least, 1.01 * buffer)

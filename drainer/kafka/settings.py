"""The settings of all Kafka clients: the addresses of the brokers, and librdkafka's properties."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar
from unicodedata import category

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from drainer.errors import UsageError
from drainer.host.trust import read_trusted
from drainer.kafka.log import ClientLog
from drainer.loading.extensions import Extension, without_prefix
from drainer.model.destinations import AWS, LOGINS, login_properties
from drainer.text.secret import REDACTED, hides, is_secret, remember

ClientT = TypeVar("ClientT")
Isolation = Literal["read_committed", "read_uncommitted"]

BOOTSTRAP = "bootstrap.servers"
BOOTSTRAP_VARIABLE = "DRAINER_BOOTSTRAP_SERVER"
ISOLATION = "isolation.level"
IN_FLIGHT = "max.in.flight.requests.per.connection"
ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")

KIB, MIB = 1024, 1024 * 1024
# The limits on how much a broker sends in one fetch. If a producer's batch does not fit, the broker
# cuts it off, and sends the whole batch again in the next fetch. The broker exceeds the limit only
# if the first batch is larger, which it then sends whole. Most batches are larger than the minimum.
FETCH_BYTES_MIN, FETCH_BYTES_MAX = 32 * KIB, MIB
# Within these limits, a fetch may have 1/256 of the bytes to prefetch. librdkafka decompresses a
# whole fetch at once, and a byte of gzip becomes up to 1,032 bytes.
PREFETCH_BY_FETCH = 256
PREFETCH_RECORD_BYTES = 512  # Every record counts as at least this many bytes to prefetch.

# The properties that drainer sets itself. The keys are the reasons why a user can't set them.
_OWNED_FOR = {
    "--group sets it": "group.id",
    "a drain never joins its group": """
        group.instance.id group.protocol group.remote.assignor partition.assignment.strategy
        max.poll.interval.ms""",
    "a drain commits only finished messages": """
        enable.auto.commit auto.commit.enable auto.commit.interval.ms enable.auto.offset.store
        offset.store.method""",
    "a drain never jumps to another offset": "auto.offset.reset",
    "a drain needs it to see the backlog's end": "enable.partition.eof",
    "drainer reports its clients' errors itself": "logger error_cb",
    "topic properties belong beside the others": "default.topic.config",
    "--tune buffer sets the memory for fetching": """
        queued.min.messages queued.max.messages.kbytes fetch.max.bytes fetch.message.max.bytes
        max.partition.fetch.bytes""",
}
OWNED = {name: why for why, names in _OWNED_FOR.items() for name in names.split()}

# librdkafka loads the values of these as code into the process, or runs them in a shell.
_OF_CODE = {
    "plugin.library.paths": "names native code to load",
    "ssl.engine.location": "names native code to load",
    "ssl.providers": "names native code to load",
    "sasl.kerberos.kinit.cmd": "is a shell command",
}
_IN_A_COMMAND = re.compile(r"sasl\.kerberos\.(principal|keytab)")
_NO_COMMAND = re.compile(r"[\w.@/:+-]*", re.ASCII)
# Properties whose name really begins with "topic.".
_NAMED_TOPIC = ("topic.metadata.", "topic.blacklist")

# A file that other programs share may set these for their producers. drainer's producers ignore
# them, because they could lose records, write them twice, or write them out of order.
_IGNORED_BY_PRODUCERS = """
    acks request.required.acks enable.idempotence enable.gapless.guarantee max.in.flight
    max.in.flight.requests.per.connection retries message.send.max.retries message.timeout.ms
    delivery.timeout.ms partitioner transactional.id transaction.timeout.ms batch.num.messages
    batch.size linger.ms queue.buffering.max.ms queue.buffering.max.messages
    queue.buffering.max.kbytes delivery.report.only.error"""

# How librdkafka's errors name a property.
_NAMED = re.compile(r'(?:No such configuration property:|configuration property) "([^"]+)"')

EXTENSIONS = tuple(LOGINS)  # The prefixes of properties that are not librdkafka's.

# Only Java's client knows this mechanism. It logs in to the brokers by OAUTHBEARER.
MSK_IAM = "AWS_MSK_IAM"
_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
JAAS = "sasl.jaas.config"
_OF_JAVA = (JAAS, "sasl.client.callback.handler.class")
_OF_JAAS = {
    "awsRoleArn": "aws.role.arn",
    "awsRoleSessionName": "aws.role.session.name",
    "awsProfileName": "aws.profile",
}
_MSK_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")

_OF_A_LOGIN = re.compile(r"sasl\.(?!mechanism)|ssl\.(key|certificate)")

# Properties that only Java's clients have, and what replaces them.
_OF_LIBRDKAFKA = {
    JAAS: "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a file of PEM certificates",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "key.deserializer": "--tune key-format",
    "value.deserializer": "--value-format",
}


class _Rejected(UsageError):
    """Raised when librdkafka rejects a property; ``name`` is None if the error does not name it."""

    def __init__(self, message: str, *, hint: str, name: str | None) -> None:
        super().__init__(message, hint=hint)
        self.name = name


class BootstrapMissing(UsageError):
    """Raised when no cluster is named."""


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """The connection settings of all clients of a drain. Their repr and errors show no secret."""

    bootstrap_servers: str  # ``host:port``, or several of them with commas between.
    # librdkafka's properties by name, without those that drainer sets itself.
    properties: Mapping[str, str] = field(default_factory=dict)
    # The properties of drainer's extensions, by the whole name.
    extras: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        remember({**self.properties, **self.extras})

    def __reduce__(self) -> tuple[type[ClientSettings], tuple[object, ...]]:
        # A process that unpickles the settings calls the constructor, so it redacts the secrets.
        return ClientSettings, (self.bootstrap_servers, self.properties, self.extras)

    @classmethod
    def load(
        cls,
        bootstrap: str | None = None,
        config_file: Path | None = None,
        overrides: Sequence[str] = (),
    ) -> ClientSettings:
        """Read the settings from a properties file, from ``name=value`` texts, and ``bootstrap``.

        A later source overrides an earlier one. Names are librdkafka's, and values are taken
        literally. Properties that only Java's clients have, such as ``sasl.jaas.config``, are
        refused, and the hint says what replaces them. Properties of extensions are kept apart, and
        each extension checks its own.

        Raises:
            BootstrapMissing: when no bootstrap servers are given.
            NotTrusted: when another user could have written the file.
            UsageError: when the file can't be read, a line or text is not ``name=value`` or has a
                control character, or a property is unknown, has a value that librdkafka rejects, or
                is set by drainer itself.
        """
        properties: dict[str, str] = {}
        refused: list[UsageError] = []
        options = [_pair(text, "a property on the command line") for text in overrides]
        for name, value in [*_of_file(config_file), *options]:
            try:
                _ensure_allowed(name, value)
            except UsageError as error:
                refused.append(error)
            else:
                properties[name] = value
        in_file = properties.pop(BOOTSTRAP, "")
        servers = (bootstrap or in_file).strip()
        if not servers:
            raise BootstrapMissing(
                "no bootstrap servers are given",
                hint=f"Name them with -b HOST:PORT, {BOOTSTRAP_VARIABLE}, or {BOOTSTRAP}=... in"
                " the properties file.",
            )
        _ensure_text(servers, "the list of bootstrap servers")
        extras = {n: properties.pop(n) for n in list(properties) if n.startswith(EXTENSIONS)}
        settings = cls(servers, *_of_msk(properties, extras, servers))
        refused += settings._rejected()
        if refused:
            texts, hints = map(str, refused), dict.fromkeys(error.hint or "" for error in refused)
            raise UsageError("; ".join(texts), hint=" ".join(hints))
        return settings

    @property
    def has_login(self) -> bool:
        """Whether the clients log in to the brokers."""
        own = any(is_secret(name) or _OF_A_LOGIN.match(name) for name in self.properties)
        return own or bool(login_properties(AWS, self.extras))

    @property
    def isolation(self) -> Isolation:
        """The isolation level. The default leaves out records of open and aborted transactions."""
        level = self.properties.get(ISOLATION)
        return "read_uncommitted" if level == "read_uncommitted" else "read_committed"

    def extension(self, prefix: str) -> dict[str, str]:
        """Return the properties of an extension, by name without the prefix, such as ``http.``."""
        return without_prefix(self.extras, prefix)

    def conf(self, log: ClientLog, **owned: str | int | bool) -> dict[str, Any]:
        """Return the configuration of a client.

        ``owned`` has further properties, with ``_`` for ``.`` in their names. Raises
        BrokerUnreachable when a login needs a token and none can be made.
        """
        tokens = {}
        if aws := self.extension(AWS):
            msk = Extension.MSK.load()
            tokens = {"oauth_cb": msk.TokenSource(msk.signer(aws), log.note_token)}
        return {
            "client.id": "drainer",
            **self.properties,
            **tokens,
            BOOTSTRAP: self.bootstrap_servers,
            **{name.replace("_", "."): value for name, value in owned.items()},
            **log.properties(),
        }

    def fetch_conf(
        self, log: ClientLog, group: str, prefetch_bytes: int, **owned: str | int | bool
    ) -> dict[str, Any]:
        """Return the configuration of a consumer that only reads what it is assigned.

        It joins no group, commits nothing, and never jumps to another offset. It reads about
        ``prefetch_bytes`` ahead, and may exceed that by one fetch. If these are at least 8 MiB, a
        decompressed fetch is at most about four times as large, unless a single batch of a producer
        is larger.
        """
        fetch_bytes = min(
            max(prefetch_bytes // PREFETCH_BY_FETCH, FETCH_BYTES_MIN), FETCH_BYTES_MAX
        )
        return self.conf(
            log,
            # A damaged record must not be handled. Java's clients check that by default, but
            # librdkafka does not, because it costs a sixth of the speed.
            check_crcs=self.properties.get("check.crcs", True),
            queued_max_messages_kbytes=max(1, prefetch_bytes // KIB),
            # The bytes don't include librdkafka's overhead for each record. So the number of
            # records is bounded as well.
            queued_min_messages=min(100_000, max(100, prefetch_bytes // PREFETCH_RECORD_BYTES)),
            max_partition_fetch_bytes=fetch_bytes,
            fetch_max_bytes=fetch_bytes,
            message_max_bytes=fetch_bytes,  # librdkafka raises fetch.max.bytes to this.
            # How long the client pauses once it has read far enough ahead. The default of a second
            # starves a fast drain: it reads 0.3M records/s instead of 2M.
            fetch_queue_backoff_ms=5,
            # A fetch that has reached the end of a log waits for more, by default for half a
            # second. Every other fetch waits behind it.
            fetch_wait_max_ms=self.properties.get("fetch.wait.max.ms", 10),
            group_id=group,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            enable_partition_eof=True,
            isolation_level=self.isolation,
            **owned,
        )

    def produce_conf(self, log: ClientLog, **owned: str | int | bool) -> dict[str, Any]:
        """Return the configuration of a producer that writes each record once and in order.

        A record is acknowledged when all in-sync replicas have it. Only one request is in flight at
        a time: with more, librdkafka (2.16) acknowledges some records that it has lost. librdkafka
        ignores properties of consumers.
        """
        ignored = _IGNORED_BY_PRODUCERS.split()
        kept = {name: value for name, value in self.properties.items() if name not in ignored}
        owned = {"acks": "all", "enable.idempotence": True, IN_FLIGHT: 1, **owned}
        return replace(self, properties=kept).conf(log, **owned)

    def consumer(self, conf: Mapping[str, Any]) -> Consumer:
        """Make a consumer from a configuration. Raises UsageError when librdkafka rejects it."""
        return self._made(Consumer, conf)

    def producer(self, conf: Mapping[str, Any]) -> Producer:
        """Make a producer from a configuration. Raises UsageError when librdkafka rejects it."""
        return self._made(Producer, conf)

    def admin(self, log: ClientLog) -> AdminClient:
        """Make a client for requests. Raises UsageError when librdkafka rejects the settings."""
        return self._made(AdminClient, self.conf(log))

    def _made(self, kind: Callable[[dict[str, Any]], ClientT], conf: Mapping[str, Any]) -> ClientT:
        try:
            return kind(dict(conf))
        except (KafkaException, TypeError, ValueError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        named = _NAMED.search(text)
        name = named[1] if named else next((n for n in self.properties if n in text), None)
        for word, java in (("JAAS", JAAS), ("TrustStore", "ssl.truststore.location")):
            name = java if word in text else name
        if name is not None and is_secret(name):
            text = f'librdkafka rejects the value of "{name}"'
        raise _Rejected(
            f"the client's properties: {text}",
            hint=f"Replace {name} with {_OF_LIBRDKAFKA[name]}."
            if name in _OF_LIBRDKAFKA
            else "Use the names and values of librdkafka's CONFIGURATION.md, and remove others.",
            name=name,
        )

    def _rejected(self) -> Iterator[UsageError]:
        """Yield an error for each property that librdkafka rejects."""
        # This client gets no extras, because a client whose login needs a token takes 10 s to make
        # if there is none.
        plain = replace(self, extras={})
        while True:
            conf = plain.fetch_conf(ClientLog(), "drainer", MIB)
            del conf[BOOTSTRAP]  # Without it, the client does not connect.
            try:
                plain.consumer(conf).close()
            except _Rejected as error:
                yield error
                kept = {n: each for n, each in plain.properties.items() if n != error.name}
                if len(kept) == len(plain.properties):
                    return
                plain = replace(plain, properties=kept)
            else:
                return

    def __repr__(self) -> str:
        every = {**self.properties, **self.extras}
        shown = {n: REDACTED if hides(n, v) else v for n, v in every.items()}
        return f"ClientSettings({self.bootstrap_servers!r}, {shown!r})"


def _of_msk(
    properties: Mapping[str, str], extras: Mapping[str, str], servers: str
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Translate the properties of a Java client's file with AWS_MSK_IAM into librdkafka's.

    Returns the properties and the extras. Without AWS_MSK_IAM they stay as they are.
    """
    uses_iam = MSK_IAM in map(properties.get, _MECHANISMS)
    known = sorted({*_OF_JAAS.values(), "aws.region"})
    allowed = known if uses_iam else []
    if unknown := [name for name in extras if name.startswith(AWS) and name not in allowed]:
        raise UsageError(
            f"{unknown[0]} is not a property of a login",
            hint=f"In addition to sasl.mechanism={MSK_IAM} there may be {', '.join(known)}.",
        )
    if not uses_iam:
        return properties, extras
    jaas = properties.get(JAAS, "")
    found = {
        ours: match[1]
        for theirs, ours in _OF_JAAS.items()
        if (match := re.search(rf"""\b{theirs}\s*=\s*["']?([^"';\s]+)""", jaas))
    }
    named = _MSK_REGION.search(servers)
    regions = [named[1] if named else None, *map(os.environ.get, _REGION_VARIABLES)]
    region = next(filter(None, [extras.get("aws.region"), *regions]), None)
    if region is None:
        raise UsageError(
            f"{MSK_IAM} needs the region of the cluster", hint="Add aws.region=eu-west-1."
        )
    apart = (*_MECHANISMS, *_OF_JAVA)
    kept = {name: value for name, value in properties.items() if name not in apart}
    kept["sasl.mechanism"] = "OAUTHBEARER"
    return kept, {**found, **extras, "aws.region": region}


def _of_file(path: Path | None) -> Iterator[tuple[str, str]]:
    if path is None:
        return
    try:
        lines = read_trusted(path).decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"can't read the properties file {path}: {reason}",
            hint="Name a readable file with one name=value per line: --client-config FILE",
        ) from None
    for number, line in enumerate(lines, 1):
        if line.strip() and line.lstrip()[0] not in "#!":
            yield _pair(line, f"{path}:{number}")


def _pair(text: str, place: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        # The line is not shown, because it may be the rest of a password.
        raise UsageError(
            f"{place} is not name=value", hint="Write it as security.protocol=SASL_SSL."
        )
    name, value = name.strip(), value.strip()
    if not name.startswith(_NAMED_TOPIC):
        name = name.removeprefix("topic.")  # librdkafka takes both names for the same.
    _ensure_text(name, place)
    _ensure_text(value, place, allowed="\r\n" if name.endswith(".pem") else "")
    return name, value


def _ensure_text(text: str, place: str, allowed: str = "") -> None:
    """Ensure that a text has no control characters.

    librdkafka reads a name only up to a NUL character. So a name with one would be another name for
    librdkafka than the one that drainer has checked.
    """
    for char in text:
        if category(char) == "Cc" and char not in allowed:
            raise UsageError(
                f"{place} has the control character U+{ord(char):04X}",
                hint="Remove that character.",
            )


def _ensure_allowed(name: str, value: str) -> None:
    if name in _OF_CODE:
        raise UsageError(f"{name} {_OF_CODE[name]}: drainer refuses that", hint=f"Remove {name}.")
    if _IN_A_COMMAND.fullmatch(name) and not _NO_COMMAND.fullmatch(value):
        raise UsageError(
            f"{name} is part of a shell command, and {value!r} has other characters than letters,"
            " digits and . @ / : + - _",
            hint="Use a principal or file name without other characters.",
        )
    if name in OWNED:
        raise UsageError(f"you can't set {name}: {OWNED[name]}", hint=f"Remove {name}.")
    if name == ISOLATION and value not in ISOLATIONS:
        raise UsageError(f'{name} is "{value}"', hint=f"Use {' or '.join(ISOLATIONS)}.")

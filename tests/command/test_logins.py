"""Client files of docs/howto/permissions.md, property by property, with which a drain logs in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion  # type: ignore[attr-defined]  # exported without a word

from certificates import PASSWORD, Authority
from command.process import Command
from docs.pages import ROOT
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from kafka.listeners import OAUTH, Listener, guarded
from kafka.tokens import Signer, TokenBroker, signer, token_broker
from kafka.topic import Topic
from keycloak import CLIENT, SECRET, keycloak

__all__ = ["signer", "token_broker"]
PAGE = ROOT / "docs/howto/permissions.md"
USER, USER_PASSWORD = "drainer", "scram-hush"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
WAIT_S = 60


def properties_of(login: str, values: Mapping[str, str]) -> str:
    """A client's file by the page's row of a login, with values where the row has none."""
    [row] = re.findall(rf"^\| {login} \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    pairs = (each.partition("=") for each in re.findall("`([^`]+)`", row))
    return "".join(f"{name}={value or values[name]}\n" for name, _, value in pairs)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> dict[str, str]:
    """Properties of a listener with TLS."""
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(authority.issue("broker", "127.0.0.1").with_suffix(".p12")),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
    }


@pytest.fixture(scope="module")
def servers(
    kafka_installed: None, tls: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Addresses of a broker's listeners, by name; it has a user for SCRAM, and a topic."""
    listeners = {
        "SCRAM": Listener(
            "SASL_SSL", {**tls, "scram-sha-512.sasl.jaas.config": SCRAM}, "SCRAM-SHA-512"
        ),
        "MTLS": Listener("SSL", {**tls, "ssl.client.auth": "required"}),
    }
    with guarded(tmp_path_factory.mktemp("broker"), listeners) as (broker, addresses):
        with Cluster.connect(ClientSettings.load(broker.bootstrap_servers), WAIT_S) as cluster:
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            user = UserScramCredentialUpsertion(USER, info, USER_PASSWORD.encode())
            cluster.admin.alter_user_scram_credentials([user])[USER].result(WAIT_S)
        Topic(broker.bootstrap_servers, "orders").produce(map(str, range(100)))
        yield addresses


def ensure_drains(command: Command, server: str, properties: str, group: str) -> None:
    """Ensure that with this file a probe passes and a drain drains, on Kafka's every connection."""
    config = command.home / "client.properties"
    config.write_text(f"bootstrap.servers={server}\n{properties}")
    where = ("--topic", "orders", "--group", group, "--client-config", str(config))
    probed = command("probe", *where)
    what = ("--handler", "count", "--from", "earliest", "--on-failure", "dead-letter", "--yes")
    answer = command("run", *where, *what, "-o", "json").answer

    assert "✓ login" in probed.out
    assert answer["messages"]["done"] == 100


@pytest.mark.long
@pytest.mark.parametrize(
    ("login", "listener"), [("SCRAM", "SCRAM"), ("mTLS, PEM", "MTLS"), ("mTLS, PKCS12", "MTLS")]
)
def test_a_client_file_of_the_page_logs_in(
    login: str, listener: str, command: Command, servers: dict[str, str], authority: Authority
) -> None:
    own = authority.issue("client")
    values = {
        "sasl.username": USER,
        "sasl.password": USER_PASSWORD,
        "ssl.ca.location": str(authority.ca),
        "ssl.certificate.location": str(own),
        "ssl.key.location": str(own.with_suffix(".key")),
        "ssl.key.password": PASSWORD,
        "ssl.keystore.location": str(own.with_suffix(".p12")),
        "ssl.keystore.password": PASSWORD,
    }
    group = re.sub(r"\W+", "-", login)

    ensure_drains(command, servers[listener], properties_of(login, values), group)


@pytest.mark.long
def test_a_client_file_of_the_page_logs_in_by_a_token_of_keycloak(
    command: Command,
    authority: Authority,
    tls: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with keycloak(tmp_path) as realm:
        tokens = f"{realm}/protocol/openid-connect"
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens}/certs"
        monkeypatch.setenv("JDK_JAVA_OPTIONS", f"{os.environ['JDK_JAVA_OPTIONS']} {allowed}")
        own = {
            "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            "sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": f"{tokens}/certs",
            "sasl.oauthbearer.expected.audience": "account",
        }
        of_mechanism = {f"oauthbearer.{name}": value for name, value in own.items()}
        listener = Listener("SASL_SSL", {**tls, **of_mechanism}, "OAUTHBEARER")
        everywhere = {
            "sasl_oauthbearer_jwks_endpoint_url": f"{tokens}/certs",
            "sasl_oauthbearer_expected_audience": "account",
        }
        with guarded(tmp_path / "broker", {"OAUTH": listener}, **everywhere) as (broker, addresses):
            Topic(broker.bootstrap_servers, "orders").produce(map(str, range(100)))
            values = {
                "ssl.ca.location": str(authority.ca),
                "sasl.oauthbearer.client.id": CLIENT,
                "sasl.oauthbearer.client.secret": SECRET,
                "sasl.oauthbearer.token.endpoint.url": f"{tokens}/token",
            }
            ensure_drains(command, addresses["OAUTH"], properties_of("OIDC", values), "OIDC")


SLOW_TASKS = """
import os, time
from pathlib import Path
import drainer

class Slow(drainer.Handler):
    def open(self, context):
        self.pids = Path(context.options["pids"])

    def note(self, what):
        with self.pids.open("a") as file:
            print(what, os.getpid(), file=file)

    def split(self, message):
        self.note("split")
        time.sleep(0.2)
        yield drainer.SubMessage(message.offset)

    def handle(self, sub):
        self.note("handle")
        time.sleep(0.2)
        if sub.key % 2:
            raise drainer.GiveUp("no")
"""


@pytest.mark.long
def test_tasks_of_spark_renew_their_tokens(
    command: Command, token_broker: TokenBroker, signer: Signer, tmp_path: Path
) -> None:
    signer.has_credentials(3600, token_s=6)
    topic = Topic(token_broker.broker.bootstrap_servers, "orders")
    topic.produce([f"{n}" + 100_000 * "x" for n in range(60)])
    client, pids = tmp_path / "client.properties", tmp_path / "pids"
    login = token_broker.login(token_broker.servers)
    client.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    what = ["--topic", "orders", "--group", "g", "--client-config", str(client)]
    what += ["--handler", command.handler(SLOW_TASKS), "--set", f"pids={pids}"]
    what += ["--from", "earliest", "--on-failure", "dead-letter", "--max-failures", "none"]
    path = f"{tmp_path}{os.pathsep}{command.env.get('PYTHONPATH', '')}"
    spark = ["--master", "local[2]", "--tune", "buffer=1MiB", "-c", "2", "-o", "json", "--yes"]

    outcome = command("run", *what, *spark, code=6, env={"PYTHONPATH": path})

    counts = outcome.answer["messages"]
    assert (counts["done"], counts["dead"]) == (30, 30)
    work = set(pids.read_text().splitlines())
    for kind in ("split", "handle"):
        tasks = {int(pid) for each, pid in map(str.split, work) if each == kind}
        times = [[at_s for each, at_s in signer.calls() if each == pid] for pid in tasks]
        assert any(each[-1] - each[0] > 3 for each in times if each), kind

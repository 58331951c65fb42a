"""AWS MSK IAM: a Java client's file as it is, and tokens that are made anew before they expire."""

from __future__ import annotations

import base64
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import drainer
from drainer.errors import Refused, UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.model.settings import LocalSettings
from drainer.msk import token_source
from kafka.listeners import OAUTH, Listener, guarded
from kafka.topic import Topic
from scenarios.brokers import Broker

HOSTS = "b-1.x.abc.kafka.eu-west-1.amazonaws.com:9098"
JAVA = """
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/d";
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""  # noqa: E501
# In place of the signer: unsecured tokens of 3 s, of credentials in a file that others replace.
SIGNER = """
import base64, json, os, pathlib, time
folder = pathlib.Path(__file__).parent

def part(fields):
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")

class MSKAuthTokenProvider:
    @staticmethod
    def generate_auth_token(region):
        credentials = json.loads((folder / "credentials").read_text())
        now = time.time()
        if credentials["expires"] < now:
            raise ValueError("the credentials have expired")
        with (folder / "calls").open("a") as calls:
            calls.write(f"{os.getpid()} {now} {region}\\n")
        fields = {"sub": credentials["user"], "iat": now, "exp": now + 3}
        return f"{part({'alg': 'none'})}.{part(fields)}.", round(1000 * (now + 3))
"""


class Signer:
    """A signer in a folder, with the credentials that it finds there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "__init__.py").write_text(SIGNER)
        self.has_credentials(60)

    def has_credentials(self, seconds: float) -> None:
        text = f'{{"user": "drainer", "expires": {time.time() + seconds}}}'
        (self.folder / "new").write_text(text)
        (self.folder / "new").replace(self.folder / "credentials")

    def calls(self) -> list[tuple[int, float]]:
        """Processes that got a token, and when."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [(int(pid), float(at_s)) for pid, at_s, _ in map(str.split, lines)]


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signer:
    monkeypatch.syspath_prepend(str(tmp_path))  # and of the child for requests to coordinators
    monkeypatch.delitem(sys.modules, "aws_msk_iam_sasl_signer", raising=False)
    return Signer(tmp_path / "aws_msk_iam_sasl_signer")


@pytest.fixture
def token_broker(kafka_installed: None, tmp_path: Path) -> Iterator[tuple[Broker, str]]:
    """A broker with a listener that takes unsecured tokens, and ends connections with them."""
    own = {
        "oauthbearer.connections.max.reauth.ms": "3600000",
        "oauthbearer.sasl.jaas.config": (
            f'{OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    listener = Listener("SASL_PLAINTEXT", own, "OAUTHBEARER")
    with guarded(tmp_path / "broker", {"OAUTH": listener}) as (running, addresses):
        yield running, addresses["OAUTH"]


def test_the_file_of_a_java_client_is_understood(tmp_path: Path, signer: Signer) -> None:
    file = tmp_path / "client.properties"
    file.write_text(JAVA)

    settings = ClientSettings.load(HOSTS, file)

    assert settings.properties == {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    assert settings.extension("aws.") == {
        "region": "eu-west-1",
        "role.arn": "arn:aws:iam::1:role/d",
    }
    assert settings.has_login


def test_what_a_token_lacks_is_reported_before_a_client_waits_for_it(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)
    login = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=AWS_MSK_IAM"]
    with pytest.raises(UsageError, match="region"):
        ClientSettings.load("localhost:1", None, login)
    with pytest.raises(UsageError, match=r"aws\.regoin"):
        ClientSettings.load("localhost:1", None, [*login, "aws.regoin=eu-west-1"])
    settings = ClientSettings.load("localhost:1", None, [*login, "aws.region=eu-west-1"])
    signer.has_credentials(-1)
    begun_s = time.monotonic()
    with pytest.raises(Refused, match="the credentials have expired"):
        Cluster.connect(settings)
    assert time.monotonic() - begun_s < 2


@pytest.mark.long
def test_the_signer_of_aws_makes_a_token_without_a_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="drainer[msk] is not installed")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    login = ["security.protocol=SASL_SSL", "sasl.mechanism=AWS_MSK_IAM"]
    settings = ClientSettings.load(HOSTS, None, login)
    with pytest.raises(Refused, match="no token for AWS_MSK_IAM"):
        settings.ensure_login()

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    before_s = time.time()
    text, expires_s = token_source(settings.extension("aws."))("")

    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "AKIDEXAMPLE" in url
    assert 800 < expires_s - before_s < 1000


@pytest.mark.long
def test_tokens_and_credentials_that_expire_during_a_drain_are_renewed(
    token_broker: tuple[Broker, str], signer: Signer, tmp_path: Path
) -> None:
    broker, servers = token_broker
    topic = Topic(broker.bootstrap_servers, "orders")
    topic.produce([f"{n}" for n in range(100)])
    login = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "aws.region": "eu-west-1",
    }
    over = threading.Event()

    def renew() -> None:
        while not over.wait(0.5):
            signer.has_credentials(4)  # as a role's are, by whoever gives them

    class Slow(drainer.Handler):
        def handle(self, sub: drainer.SubMessage) -> None:
            over.wait(0.1)

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        summary = drainer.drain(
            topic="orders",
            group="g",
            handler=Slow,
            client=login,
            plan=tmp_path / "plan.json",
            from_="earliest",
            settings=LocalSettings(concurrency=1),
        )
    finally:
        over.set()
        renewing.join()

    assert (summary.exit_code, summary.messages.done) == (0, 100)
    assert summary.partitions[0].committed == 100
    calls = signer.calls()
    mine = [at_s for pid, at_s in calls if pid == os.getpid()]
    assert mine[-1] - mine[0] > 6
    assert {pid for pid, _ in calls} - {os.getpid()}, "the child for coordinators has its own"

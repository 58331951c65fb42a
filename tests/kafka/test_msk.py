"""AWS MSK IAM: a Java client's file as it is, and tokens that are made anew before they expire."""

from __future__ import annotations

import base64
import os
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

import drainer
from drainer.errors import BrokerUnreachable, UsageError
from drainer.kafka.answers import rejected_login
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.msk import TokenSource
from drainer.kafka.msk import signer as signer_of
from drainer.kafka.settings import ClientSettings
from drainer.model.settings import FailureSettings, Limit, LocalSettings, OnFailure
from drainer.model.status import Summary
from kafka.tokens import Signer, TokenBroker, signer, token_broker
from kafka.topic import Topic

__all__ = ["signer", "token_broker"]

HOSTS = "b-1.x.abc.kafka.eu-west-1.amazonaws.com:9098"
JAVA = """
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/d";
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""  # noqa: E501
HANDSHAKE = "SASL OAUTHBEARER mechanism handshake failed:"
SUPPORTED = "broker's supported mechanisms:"
LETTERS = FailureSettings(
    retries=0, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="dead", max_failures=Limit()
)


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
    with pytest.raises(BrokerUnreachable, match="the credentials have expired"):
        Cluster.connect(settings)
    assert time.monotonic() - begun_s < 8  # the limit of a connection is 10 s


@pytest.mark.parametrize(
    ("text", "rejected"),
    [
        ('SASL authentication error: {"status":"invalid_token"}', True),
        (f"{HANDSHAKE} Broker: Unsupported SASL mechanism: {SUPPORTED} PLAIN", True),
        (f"{HANDSHAKE} Broker: Request not valid in current SASL state: {SUPPORTED} ", False),
        (f"{HANDSHAKE} Local: Broker transport failure: {SUPPORTED} (n/a)", False),
        ("Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception", False),
    ],
)
def test_what_the_next_login_may_pass_is_no_rejection(text: str, rejected: bool) -> None:
    log = ClientLog()
    log.take(KafkaError(KafkaError._AUTHENTICATION, f"sasl_plaintext://h:1/1: {text}"))
    assert (rejected_login(log.complaints) is not None) == rejected


class Role:
    """Credentials of a role in virtual time, as AWS's SDK has them, and AWS's signer with them.

    Those of an hour are renewed 10 min before they expire, or while ``away``, are not.
    """

    def __init__(self) -> None:
        self.now_s, self.expire_s, self.away = 0.0, 3600.0, False

    def sign(self) -> tuple[str, float]:
        if self.now_s > self.expire_s - 600:
            if self.away:
                raise OSError("sts.amazonaws.com, s3cr3t-key, does not answer")
            self.expire_s = self.now_s + 3600
        return f"{min(self.now_s + 900, self.expire_s)}", 1000 * (self.now_s + 900)

    def run(self, source: TokenSource, until_s: float) -> list[float]:
        """Request tokens as librdkafka does; returns the seconds in which a login would fail."""
        good_until_s, next_s, failed = 0.0, self.now_s, list[float]()
        while self.now_s < until_s:
            if self.now_s >= next_s:
                try:
                    text, expires_s = source("")
                    good_until_s = float(text)
                    next_s = self.now_s + 0.8 * (expires_s - self.now_s)
                except BrokerUnreachable:
                    next_s = self.now_s + 10
            if self.now_s > good_until_s:
                failed.append(self.now_s)
            self.now_s += 1
        return failed


def test_a_token_is_renewed_before_it_or_the_credentials_of_a_role_expire() -> None:
    role, troubles = Role(), list[str]()
    source = TokenSource(role.sign, troubles.append, lambda: role.now_s)

    assert role.run(source, 8 * 3600) == []
    assert not any(troubles)


def test_without_new_credentials_a_drain_has_a_token_for_minutes_and_then_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-key")
    role, log = Role(), ClientLog()
    source = TokenSource(role.sign, log.note_token, lambda: role.now_s)
    role.run(source, 2900)
    role.away = True
    first = role.run(source, 2 * 3600)[0]
    assert first - 3000 > 300
    log.take(KafkaError(KafkaError._AUTHENTICATION, "{status: invalid_token}"))
    [rejected] = log.complaints
    reason = "no token for AWS_MSK_IAM: OSError: sts.amazonaws.com, ***, does not answer"
    assert rejected.text == f"{{status: invalid_token}} ({reason})"

    role.away = False
    assert role.run(source, 3 * 3600) == []
    log.take(KafkaError(KafkaError._AUTHENTICATION, "another"))
    assert log.complaints[-1].text == "another"


@pytest.mark.long
def test_the_signer_of_aws_makes_a_token_without_a_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="drainer[msk] is not installed")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    login = ["security.protocol=SASL_SSL", "sasl.mechanism=AWS_MSK_IAM"]
    settings = ClientSettings.load(HOSTS, None, login)
    with pytest.raises(BrokerUnreachable, match="no token for AWS_MSK_IAM"):
        settings.admin(ClientLog())

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    before_s = time.time()
    text, expires_ms = signer_of(settings.extension("aws."))()

    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "AKIDEXAMPLE" in url
    assert 800 < expires_ms / 1000 - before_s < 1000


def drained(client: dict[str, str], plan: Path, pause_s: float) -> Summary:
    """The end of a drain of all orders in such a time each; each second one is dead."""

    never = threading.Event()

    class Slow(drainer.Handler):
        def handle(self, sub: drainer.SubMessage) -> None:
            never.wait(pause_s)
            if sub.message.offset % 2:
                raise drainer.GiveUp("no")

    return drainer.drain(
        topic="orders",
        group="g",
        handler=Slow,
        client=client,
        plan=plan,
        from_="earliest",
        settings=LocalSettings(concurrency=1),
        failures=LETTERS,
    )


@pytest.mark.long
def test_tokens_and_credentials_that_expire_during_a_drain_are_renewed(
    token_broker: TokenBroker, signer: Signer, tmp_path: Path
) -> None:
    topic = Topic(token_broker.broker.bootstrap_servers, "orders")
    topic.produce([f"{n}" for n in range(100)])
    over = threading.Event()

    def renew() -> None:
        while not over.wait(0.5):
            signer.has_credentials(4)  # as a role's are, by whoever gives them

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        client = token_broker.login(token_broker.servers)
        summary = drained(client, tmp_path / "plan.json", 0.1)
    finally:
        over.set()
        renewing.join()

    assert (summary.exit_code, summary.messages.done, summary.messages.dead) == (6, 50, 50)
    assert summary.partitions[0].committed == 100
    calls = signer.calls()
    mine = [at_s for pid, at_s in calls if pid == os.getpid()]
    assert mine[-1] - mine[0] > 6
    assert {pid for pid, _ in calls} - {os.getpid()}, "the child for coordinators has its own"


@pytest.mark.long
def test_a_login_that_the_broker_takes_for_too_early_ends_no_drain(
    token_broker: TokenBroker,
    signer: Signer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    signer.has_credentials(600, 60)
    topic = Topic(token_broker.broker.bootstrap_servers, "orders")
    topic.produce([f"{n}" for n in range(200)])

    summary = drained(token_broker.login(token_broker.hasty), tmp_path / "plan.json", 0.02)

    assert (summary.exit_code, summary.messages.done, summary.messages.dead) == (6, 100, 100)
    assert "Request not valid in current SASL state" in caplog.text

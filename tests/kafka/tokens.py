"""Logins by tokens: a broker that takes unsecured ones, and a signer in place of AWS's."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from drainer.kafka import coordinator
from kafka.listeners import OAUTH, Listener, guarded
from scenarios.brokers import Broker

MODULE = "aws_msk_iam_sasl_signer"
# In place of the signer: unsecured tokens, of credentials in a file that others replace.
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
        life_s = credentials["life"]
        fields = {"sub": credentials["user"], "iat": now, "exp": now + life_s}
        return f"{part({'alg': 'none'})}.{part(fields)}.", round(1000 * (now + life_s))
"""


class Signer:
    """A signer in a folder, with the credentials that it finds there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "__init__.py").write_text(SIGNER)
        self.has_credentials(60)

    def has_credentials(self, seconds: float, token_s: int = 3) -> None:
        """Give it credentials of so many seconds, which sign tokens of ``token_s``."""
        found = {"user": "drainer", "expires": time.time() + seconds, "life": token_s}
        (self.folder / "new").write_text(json.dumps(found))
        (self.folder / "new").replace(self.folder / "credentials")

    def calls(self) -> list[tuple[int, float]]:
        """Processes that got a token, and when."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [(int(pid), float(at_s)) for pid, at_s, _ in map(str.split, lines)]


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signer]:
    # The child for requests to coordinators gets this path, too, if it is started for real.
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(coordinator, "subprocess", subprocess)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield Signer(tmp_path / MODULE)
    sys.modules.pop(MODULE, None)


@dataclass
class TokenBroker:
    """A broker, with listeners whose connections end with their tokens.

    At ``hasty`` they have 0.9 s, and then refuse the next login, which comes too soon.
    """

    broker: Broker
    servers: str
    hasty: str

    def login(self, servers: str) -> dict[str, str]:
        """Properties of a client that gets its tokens from the signer."""
        return {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "AWS_MSK_IAM",
            "aws.region": "eu-west-1",
        }


@pytest.fixture
def token_broker(kafka_installed: None, tmp_path: Path) -> Iterator[TokenBroker]:
    jaas = f'{OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'

    def listener(reauth_ms: int) -> Listener:
        own = {"connections.max.reauth.ms": f"{reauth_ms}", "sasl.jaas.config": jaas}
        found = {f"oauthbearer.{name}": value for name, value in own.items()}
        return Listener("SASL_PLAINTEXT", found, "OAUTHBEARER")

    listeners = {"OAUTH": listener(3_600_000), "HASTY": listener(900)}
    with guarded(tmp_path / "broker", listeners) as (running, addresses):
        yield TokenBroker(running, addresses["OAUTH"], addresses["HASTY"])

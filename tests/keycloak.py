"""Keycloak, which gives tokens: fetched once into the user's cache, and compared by its SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError

from filelock import FileLock
from platformdirs import user_cache_path

from drainer.host.process import bound_to_parent
from drainer.sandbox.ports import HOST, BrokerPorts
from needs import await_answer, missing

VERSION = "26.5.6"
NAME = f"keycloak-quarkus-dist-{VERSION}.zip"
URL = f"https://repo1.maven.org/maven2/org/keycloak/keycloak-quarkus-dist/{VERSION}/{NAME}"
SHA256 = "490189d9dff05272432d51f71a069462eeca97f2920a694d539a1e6c26a5a347"
START_S = 600.0  # it builds itself first
CLIENT, SECRET = "drainer", "client-hush"
REALM = {
    "realm": "kafka",
    "enabled": True,
    "accessTokenLifespan": 60,
    "clients": [
        {
            "clientId": CLIENT,
            "secret": SECRET,
            "serviceAccountsEnabled": True,
            "standardFlowEnabled": False,
            "protocol": "openid-connect",
        }
    ],
}


def keycloak_zip() -> Path:
    """The distribution in the cache; skips the test where it can't be had."""
    path = user_cache_path("drainer") / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            part = path.with_suffix(".part")
            try:
                with urllib.request.urlopen(URL, timeout=60) as found, part.open("wb") as file:
                    shutil.copyfileobj(found, file)
            except (URLError, TimeoutError) as error:
                missing(f"Keycloak can't be fetched: {error}")
            part.replace(path)
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256, path
    return path


@contextmanager
def keycloak(folder: Path) -> Iterator[str]:
    """Address of a realm of one client, which logs in by its secret."""
    with zipfile.ZipFile(keycloak_zip()) as packed:
        packed.extractall(folder)
    home = folder / f"keycloak-{VERSION}"
    (home / "data/import").mkdir(parents=True)
    (home / "data/import/realm.json").write_text(json.dumps(REALM))
    port = BrokerPorts.free().client
    words = ["start-dev", f"--http-port={port}", f"--http-host={HOST}", "--import-realm"]
    env = {**os.environ, "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1 -Xmx512m"}
    env.pop("JDK_JAVA_OPTIONS", None)  # it names a garbage collector, as Keycloak does
    with (folder / "keycloak.log").open("w") as log:
        process = subprocess.Popen(
            bound_to_parent(["/bin/sh", str(home / "bin/kc.sh"), *words, "--cache=local"]),
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    realm = f"http://{HOST}:{port}/realms/kafka"
    try:
        await_answer(realm, process, START_S)
        yield realm
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(home)

"""Cases of a drain that others reach on the network, in a browser or on the machine: its ports,
files and memory."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from confluent_kafka import Producer

from scenarios.trust.case import Broken, Running, Stage, case, ensure

CLIENTS, DESCRIPTORS = 500, 256
BOMBS, BOMB_BYTES, PEAK_MIB = 4, 200_000_000, 700
PERSON, SECRET = "ann@example.com", "hush"
MASK = "a mask of this case"
WAITS = """
import asyncio
from pathlib import Path

async def handle(sub):
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
"""
WAITS_ON_SPARK = """
import time
from pathlib import Path

FOLDER = Path({folder!r})

def handle(sub):
    (FOLDER / "begun").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.01)
"""


@contextmanager
def serving(
    stage: Stage, *words: str, by: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Iterator[tuple[Running, str]]:
    """Provide a drain that waits for the file ``go``, and the URL of its page."""
    topic = stage.topic([(PERSON.encode(), b"{}")] * 20)
    more = ("--metrics", "0", "--tune", "max-outage=10s", *words)
    words = tuple(stage.run_words(topic, stage.file("waits.py", WAITS), *more))
    with stage.running(*words, by=by, env=env) as running:
        url = running.prints(r"page: (\S+)").removeprefix("page: ")
        running.until((stage.folder / "begun").exists, "a call")
        yield running, url


@case(
    f"{CLIENTS} slow clients of the metrics port, and {DESCRIPTORS} descriptors",
    before="the drain ended: can't write the journal: Too many open files",
)
def slow_clients(stage: Stage) -> str:
    limited = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"')
    with serving(stage, by=limited) as (running, url), ExitStack() as s:
        port = int(url.rstrip("/").rpartition(":")[2])
        for _ in range(CLIENTS):
            client = s.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            with suppress(ConnectionError):  # The drain closes it at once.
                client.sendall(b"GET /metrics HTTP/1.0\r\n")
        open_ = 0
        for _ in range(20):  # The drain accepts the connections one after the other.
            time.sleep(0.1)
            open_ = max(open_, len(list(Path(f"/proc/{running.process.pid}/fd").iterdir())))
        ensure(open_ < DESCRIPTORS // 2, f"{open_} of {DESCRIPTORS} descriptors are taken")
        ensure(fetched(f"{url}healthz")[0] == 200, "a probe gets no answer, and may have it ended")
        (stage.folder / "go").touch()
        running.ends(0)
    return f"{open_} descriptors are open meanwhile, a probe is answered, and it ends with 0"


def fetched(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@case(
    "a web page whose name is made to lead to the metrics port (DNS rebinding)",
    before="it read the page, with the hottest sub-keys",
)
def rebinding(stage: Stage) -> str:
    with serving(stage) as (_, url):
        for path in ("", "metrics"):
            code, body = fetched(url + path, Host="evil.example")
            ensure(code == 421 and "drainer_" not in body, f"/{path}: {code} {body[:80]}")
            ensure(fetched(url + path)[0] == 200, f"/{path} does not answer at its address")
    return "421 to other names; 200 to its address"


def others_read(folder: Path) -> list[Path]:
    """Return the files in a folder that any user may read."""
    found = []
    for place, folders, files in os.walk(folder):
        names = [Path(place, name) for name in files]
        found += [each for each in names if each.stat().st_mode & stat.S_IROTH]
        reach = [name for name in folders if Path(place, name).stat().st_mode & stat.S_IXOTH]
        folders[:] = reach
    return found


@case(
    "messages on the disk while local Spark handles them",
    before="in blockmgr-…, mode 0755, for every user to read",
)
def blocks_of_spark(stage: Stage) -> str:
    temporary = stage.folder / "tmp"
    temporary.mkdir()
    topic = stage.topic([(PERSON.encode(), b"{}")] * 20)
    handler = stage.file("waits.py", WAITS_ON_SPARK.format(folder=str(stage.folder)))
    where = ("--engine", "spark", "--master", "local[2]")
    conf = f"spark.driver.extraJavaOptions=-Djava.io.tmpdir={temporary}"
    words = stage.run_words(topic, handler, *where, "--spark-conf", conf)
    with stage.running(*words, env={"TMPDIR": str(temporary)}) as running:
        running.until((stage.folder / "begun").exists, "a call")
        blocks = list(temporary.rglob("blockmgr-*"))
        ensure(blocks, f"no blocks in {temporary}")
        readable = [each for each in others_read(temporary) if "blockmgr" in str(each)]
        ensure(not readable, f"any user may read {readable}")
        (stage.folder / "go").touch()
        running.ends(0)
    ensure(not list(temporary.rglob("blockmgr-*")), "blocks are left behind")
    return "in a folder of mode 0700, which is gone at the end"


@case(
    "Spark's UI while local Spark drains",
    before="it listened on all addresses, ended queries, and showed the key of an Azure account",
)
def ui_of_spark(stage: Stage) -> str:
    topic = stage.topic([(PERSON.encode(), b"{}")] * 20)
    handler = stage.file("waits.py", WAITS_ON_SPARK.format(folder=str(stage.folder)))
    where = ("--engine", "spark", "--master", "local[2]")
    conf = f"spark.hadoop.fs.azure.account.key.store={SECRET}-{SECRET}"
    words = stage.run_words(topic, handler, *where, "--spark-conf", conf)
    with stage.running(*words) as running:
        url = running.prints(r"UI is at (\S+)").removeprefix("UI is at ")
        running.until((stage.folder / "begun").exists, "a call")
        with suppress(OSError):
            socket.create_connection(("127.0.0.2", int(url.rpartition(":")[2])), 5).close()
            raise Broken("it listens on other addresses than 127.0.0.1")
        (application,) = json.loads(fetched(f"{url}/api/v1/applications")[1])
        about = f"{url}/api/v1/applications/{application['id']}"
        environment = fetched(f"{about}/environment")[1]
        ensure("azure.account.key.store" in environment, "the setting is not there")
        ensure(f"{SECRET}-{SECRET}" not in environment, "it shows the key")
        settings = dict(json.loads(environment)["sparkProperties"])
        ensure(settings["spark.ui.killEnabled"] == "false", "it ends queries")
        (stage.folder / "go").touch()
        running.ends(0)
    return "it listens on 127.0.0.1, can't end a query, and shows no secret"


@case(
    "secrets in a profile, in variables and in URLs",
    before="a resume and its hooks had those in URLs",
)
def secrets_in_settings(stage: Stage) -> str:
    profile = stage.folder / "p.toml"
    profile.touch(mode=0o600)
    url = f"https://store.example/x?sv=1&sig={SECRET}"
    profile.write_text(f'set = ["token={SECRET}", "url={url}"]\n')
    hook = "env > seen; cat >> seen"
    env = {"DRAINER_PROFILE": str(profile), "DRAINER_MASK_KEYS": f"{SECRET}-{MASK}"}
    env |= {"DRAINER_SPARK_CONF": f"spark.ssl.keyPassword={SECRET}"}
    topic = stage.topic([(b"k", b"{}")] * 20)
    ended = stage.drain(topic, "count", "--engine", "process", "--tune", f"on-end={hook}", env=env)
    seen = (stage.folder / "seen").read_text()
    ensure("sub_messages" in seen, "the hook did not run")
    ensure(SECRET not in seen + ended.out + ended.err, "the hook has a secret")
    ensure("DRAINER_STATUS=done" in seen, "the hook does not know how it ended")
    ensure("DRAINER_" not in seen.replace("DRAINER_STATUS", ""), "the hook inherits ours")
    return "neither the output nor a hook has one"


@case("a mask whose secret is 1", before="taken for a secret: each key was found by trying")
def weak_mask(stage: Stage) -> str:
    env = {"DRAINER_MASK_KEYS": "1"}
    refused = stage.drainer("ps", env=env, code=2)
    ensure("openssl rand" in refused.err, refused.err)
    return "refused with exit 2 and a way to make one"


@case(
    f"{BOMBS} records of 204 KB that decompress to 200 MB each, under a buffer of 64 MiB",
    before="839 MB",
)
def bombs(stage: Stage) -> str:
    topic = stage.topic()
    sender = Producer(
        {
            "bootstrap.servers": stage.bootstrap,
            "compression.type": "gzip",
            "message.max.bytes": 2 * BOMB_BYTES,
            "queue.buffering.max.kbytes": 4 * BOMB_BYTES // 1024,
        }
    )
    for number in range(BOMBS):
        sender.produce(topic, bytes(BOMB_BYTES), b"%d" % number)
        ensure(sender.flush(60) == 0, "a record was not taken")
    handler = stage.file("waits.py", WAITS)
    (stage.folder / "go").touch()
    linger = ("--metrics", "0", "--tune", "metrics-linger=1h", "--tune", "buffer=64M")
    with stage.running(*stage.run_words(topic, handler, *linger)) as running:
        running.prints("metrics stay up")
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        peak = next(int(line.split()[1]) // 1024 for line in status.splitlines() if "HWM" in line)
    ensure(peak < PEAK_MIB, f"{peak} MiB")
    return f"{peak} MiB at most"

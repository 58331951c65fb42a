"""Plays the emergency: the story of ``drainer demo``, and then one customer of 40 who has to be
first.

The messages of the 40 customers are interleaved on one partition. The scenario measures how long
these take: the customer's work alone, one read of the backlog that looks for a customer who has
nothing in it, and the whole backlog without and with ``--first``. It ends with exit code 1 if the
customer is drained later than 1.1 times its own work and one read, or the whole later than 1.05
times the whole without ``--first`` and one read, by the medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from drainer.kafka.settings import ClientSettings
from scenarios.brokers import Broker, delete_topic
from scenarios.fill import create_topic, fill

HANDLER = Path(__file__).with_name("handler.py")
CUSTOMERS, CUSTOMER, UNKNOWN = 40, 4, 99
OPERATIONS, DOCUMENTS = 50, 997  # Operations of a message, and documents of a customer.
LATER, LATER_ALL = 1.1, 1.05


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scenarios.emergency_onboarding", description=__doc__
    )
    parser.add_argument(
        "--messages", type=int, default=8_000, help="the number of messages, each of 50 operations"
    )
    parser.add_argument("--concurrency", type=int, default=300)
    parser.add_argument("--latency-ms", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--no-demo", action="store_true", help="leave out the story of `drainer demo`"
    )
    given = parser.parse_args()
    if not given.no_demo:
        subprocess.run([sys.executable, "-m", "drainer", "demo"], check=True)
    with (
        TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", print_line=print) as broker,
    ):
        settings = ClientSettings.load(broker.bootstrap_servers)
        how = ["-c", str(given.concurrency), "--set", f"latency_ms={given.latency_ms}"]
        good = _customer_first(settings, Path(folder), given.messages, given.rounds, how)
    raise SystemExit(0 if good else 1)


def _customer_first(
    settings: ClientSettings, folder: Path, messages: int, rounds: int, how: list[str]
) -> bool:
    alone = range(CUSTOMER, messages, CUSTOMERS)
    first = f"payload.customer == {CUSTOMER}"
    unknown = f"payload.customer == {UNKNOWN}"
    customer: list[float] = []
    whole: list[float] = []
    print("| its work alone | one read | it first | of both | all, without | with | of both |")
    print("|---|---|---|---|---|---|---|")
    with topic(settings, range(messages)) as mixed, topic(settings, alone) as own:
        for _ in range(rounds):
            work_s = drain(settings, folder, own, *how)[0]
            read_s = drain(settings, folder, mixed, *how, "--only", unknown)[0]
            without_s = drain(settings, folder, mixed, *how)[0]
            with_s, first_s = drain(settings, folder, mixed, *how, "--first", first)
            customer.append(first_s / (work_s + read_s))
            whole.append(with_s / (without_s + read_s))
            print(
                f"| {work_s:.2f} s | {read_s:.2f} s | {first_s:.2f} s | {customer[-1]:.2f}"
                f" | {without_s:.2f} s | {with_s:.2f} s | {whole[-1]:.2f} |",
                flush=True,
            )
    print(
        f"the customer after {median(customer):.2f} times its own work and a read ({LATER} wanted),"
        f" all after {median(whole):.2f} times all and a read ({LATER_ALL} wanted)"
    )
    return median(customer) <= LATER and median(whole) <= LATER_ALL


@contextmanager
def topic(settings: ClientSettings, numbers: range) -> Iterator[str]:
    """Provide a topic of one partition with these messages of the backlog."""
    name = f"emergency-{secrets.token_hex(3)}"
    create_topic(settings, name)
    try:
        fill(settings, name, map(record, numbers))
        yield name
    finally:
        delete_topic(settings, name)


def record(number: int) -> tuple[bytes, bytes, int]:
    """Make one message of a customer. All messages have one key."""
    customer, place = number % CUSTOMERS, number // CUSTOMERS * OPERATIONS
    operations = [
        {"document": f"{customer}-{(place + n) % DOCUMENTS}", "customer": customer, "value": number}
        for n in range(OPERATIONS)
    ]
    return b"all", orjson.dumps({"operations": operations}), 0


def drain(settings: ClientSettings, folder: Path, name: str, *words: str) -> tuple[float, float]:
    """Drain, and return how long that took, and how long until the class was drained, in
    seconds."""
    group = f"{name}-{secrets.token_hex(3)}"
    plan = folder / f"{group}.json"
    found = subprocess.run(
        [
            *(sys.executable, "-m", "drainer", "run", "--topic", name, "--group", group),
            *("--handler", f"{HANDLER}:Operations", "-b", settings.bootstrap_servers),
            *("--from", "earliest", "--plan", str(plan), "--yes", "-o", "json", *words),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    summary: dict[str, Any] = json.loads(found.stdout)
    begun = datetime.fromisoformat(summary["history"][0]["at"])
    ended = [datetime.fromisoformat(each["ended"]) for each in summary["classes"]]
    return summary["elapsed_s"], max(((at - begun).total_seconds() for at in ended), default=0.0)


if __name__ == "__main__":
    main()

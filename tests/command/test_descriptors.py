"""At its limit of file descriptors a drain names that limit as the cause."""

from __future__ import annotations

from command.conftest import distinct
from command.process import Command

LEAKS = """
import resource, socket
LIMIT = {limit}
kept = []

def open(context):
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

async def handle(sub):
    if LIMIT < 1000:
        kept.append(socket.socket())
"""


def test_a_handler_that_leaks_sockets_loses_nothing_and_is_named_as_the_cause(
    command: Command,
) -> None:
    leaks = command.handler(LEAKS.format(limit=100))
    topic = command.topic(distinct(400))
    bad = ("--retries", "0", "--tune", "breaker=off", "--on-failure", "skip")
    outcome = command.drain(topic, *bad, "-c", "4", "-o", "json", handler=leaks, code=4)
    assert "): this machine fails the handler: Too many open files" in outcome.err
    assert "gives nothing up" in outcome.err
    assert "of at most 100 this process has 100 open" in outcome.err
    assert " sockets" in outcome.err
    assert outcome.answer["error"].startswith("can't write the ")
    assert "`ulimit -n`" in outcome.answer["hint"]
    assert outcome.answer["sub_messages"]["failed"] == 0
    command.handler(LEAKS.format(limit=1000))
    command.resume(topic)
    assert command.committed(topic) == {0: 400}


def test_too_few_descriptors_at_the_start_are_no_bug_of_drainers(command: Command) -> None:
    starved = command.handler(LEAKS.format(limit=10))
    outcome = command.drain(command.topic(distinct(4)), handler=starved, code=1)
    assert "bug" not in outcome.err
    assert outcome.error.startswith("Too many open files (of at most 10 this process has ")
    assert outcome.hint.startswith("Close what the handler leaves open, or raise the limit")

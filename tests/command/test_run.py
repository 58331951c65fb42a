"""A drain from end to end: everything is handled once and in order, and accounted for."""

from __future__ import annotations

import json
import random

from command.process import ON_THREADS, Command
from command.record import every_place


def test_all_is_handled_once_and_in_order_with_several_sub_keys_and_barriers(
    command: Command,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    values = [
        json.dumps(
            [
                chance.choice([f"k{chance.randrange(5)}", ["k0", f"k{chance.randrange(5)}"]])
                for _ in range(chance.randrange(4))
            ]
            + [None] * (chance.random() < 0.05)
        )
        for _ in range(300)
    ]
    topic = command.topic(values, partitions=2)
    outcome = command.drain(topic, handler=ON_THREADS, pause_ms=1)
    assert sorted(command.record.done()) == sorted(every_place(values) | every_place(values, 1))
    command.record.check_order()
    assert command.record.most_at_once() > 1
    assert command.committed(topic) == {0: 300, 1: 300}
    action, _, rest = outcome.err.partition("draining ")
    for shown in ("[0, 300)", "no offset", "does not exist", command.group(topic), "plan undo"):
        assert shown in action
    assert rest, "how far it was"
    assert "Drained: 600 messages" in outcome.out
    assert outcome.out.count("adds up") == 2
    assert command.left_behind == [command.plan(topic).name]
    assert command.plan(topic).stat().st_mode & 0o777 == 0o600

"""A model of a cluster, made of what its steps cost here: where its ceiling is, and what sets it.

The processor time of tasks grows with the backlog, and all cores share it. What one place does for
all of them is not shared: the driver starts tasks, gives them their shares and adds up what they
report, and one broker leads the partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from drainer.core.merge import TaskRecord
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import read_range
from drainer.message import Origin
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts, Progress
from drainer.spark.assign.aggregation import Aggregation
from drainer.spark.assign.slicing import SPAN_BYTES_LEAST
from drainer.spark.session.settings import SLICE_BYTES
from drainer.spark.state.records import Head, encode_record
from drainer.spark.state.state import State, TaskInput, TaskShare
from drainer.store.journal import decode_line
from scenarios.spark_scale import slots, steps
from scenarios.spark_scale.drains import IN_PROCESS, Bench

CORES = (16, 100, 1_000)
LONG = slots.Load(120_000)
LINE_BYTES_PER_S = 1.25e9  # The line of the leader has 10 Gbit/s.
# A task makes this many requests to an object store at most (drainer/spark/state/lease.py).
REQUESTS_PER_S = 3
TASKS, HOLES = 200, 5_000  # The tasks and holes of the account that is measured.
COMPUTES_S = 0.001  # A handler that computes takes this long for a sub-message.


def compare(made: Bench) -> dict[str, Any]:
    """Print what each step takes of the processor, and the limits by cores. Return both."""
    costs = measure(made)
    print("| step | processor time | of |\n|---|---|---|")
    for name, of in STEPS.items():
        print(f"| {name} | {1e6 * costs[name]:.2f} µs | a sub-message, {of} |")
    print(f"| whole | {1e6 * costs['whole']:.2f} µs | a sub-message, in a drain |")
    print(f"| begin | {1e3 * costs['begin']:.2f} ms | a task, the driver's |")
    print(f"| give | {1e3 * costs['give']:.3f} ms | a task that handles, the driver's |")
    print(f"| fold | {1e3 * costs['fold']:.3f} ms | a report of {HOLES:,} holes, the driver's |")
    print(
        f"\n{costs['log']:.1f} bytes of a sub-message in the log, {costs['sent']:.1f} sent,"
        f" {costs['shuffled']:.1f} shuffled\n"
    )
    limits = {name: [limit(costs, cores) for cores in CORES] for name, limit in LIMITS.items()}
    heading = [
        "cores",
        *LIMITS,
        "bound by",
        "a slice of 2 GiB, s",
        "driver folds, of a second",
        "requests/s",
        "with 1 ms of computing a sub-message",
    ]
    print(f"| {' | '.join(heading)} |\n" + "|---" * len(heading) + "|")
    for place, cores in enumerate(CORES):
        own = {name: limit[place] for name, limit in limits.items()}
        least = min(own, key=own.__getitem__)
        row = [
            f"{cores:,}",
            *(f"{rate:,.0f}/s" for rate in own.values()),
            least,
            f"{_subs(costs) / own[least]:.1f}",
            f"{cores * costs['fold']:.2f}",
            f"{cores * REQUESTS_PER_S:,}",
            f"{min(own[least], cores / (costs['whole'] + COMPUTES_S)):,.0f}/s",
        ]
        print(f"| {' | '.join(row)} |", flush=True)
    return {"costs": costs, "cores": CORES, "limits": limits}


STEPS = {
    "read": "from the broker",
    "split": "orjson, 50 of a message",
    "encode": "into chunks",
    "decode": "from chunks",
    "handle": "lanes, workers, account",
}


def measure(made: Bench) -> dict[str, float]:
    # The start of a drain has Java's compiler in it, so it is left out.
    log = made.fill("most", LONG.records) - made.fill("equal", slots.LOADS["equal"].records)
    subs = (LONG.messages - slots.LOADS["equal"].messages) * slots.MEAN
    alone = [made.drain(t, "Nothing", 1000, IN_PROCESS).processor_s for t in ("most", "equal")]
    cost = slots.drain(made, "most", 2).beyond(slots.drain(made, "equal", 2))
    task_s = slots.empty("local[2]", 2)["task_s"]
    found = {name: min(each) for name, each in steps.measure().items()}
    read_s = _read_s(made, "most", LONG.messages)
    found["read"] = read_s / (LONG.messages * slots.MEAN)
    found["handle"] = (alone[0] - alone[1]) / subs - found["read"] - found["split"]
    found["whole"] = (cost.processor_s - cost.tasks * task_s) / subs
    found["begin"] = slots.empty("local-cluster[2,1,1024]", 64)["driver_s"]
    give_s, fold_s = _account_s(made)
    found |= {"give": give_s / TASKS, "fold": fold_s / TASKS}
    return found | {"log": log / subs, "sent": cost.sent / subs, "shuffled": cost.shuffled / subs}


def _read_s(made: Bench, topic: str, count: int) -> float:
    """Return the processor time of reading a topic, including librdkafka's threads."""
    settings = ClientSettings.load(made.bootstrap_servers)
    with Cluster.connect(settings) as cluster:
        origin = Origin(topic, cluster.topic(topic).topic_id, 0)
    begun_s = time.process_time()
    assert (
        sum(len(batch) for batch in read_range(settings, origin, 0, count, reader="model")) == count
    )
    return time.process_time() - begun_s


def _subs(costs: Mapping[str, float]) -> float:
    """Return the number of sub-messages of a slice."""
    return SLICE_BYTES / costs["log"]


def _driver(costs: Mapping[str, float], cores: int) -> float:
    # The query of a slice has a task for each span, and one for each slot, which handles a shard.
    spans = min(cores, SLICE_BYTES / SPAN_BYTES_LEAST)
    return _subs(costs) / ((spans + cores) * costs["begin"] + cores * costs["give"])


LIMITS: dict[str, Callable[[Mapping[str, float], int], float]] = {
    "processor": lambda costs, cores: cores / costs["whole"],
    "the driver begins tasks": _driver,
    "the leader's line": lambda costs, _: LINE_BYTES_PER_S / costs["sent"],
}


def _account_s(made: Bench) -> tuple[float, float]:
    """Return the processor time of the driver's account for one slice of many tasks.

    The first number is that of beginning and ending the slice and of giving all tasks their shares.
    The second one is that of a report of each task, from the records to the plan's claims.
    """
    plans = [OffsetPlan.decode(path.read_bytes()) for path in made.folder.glob("g-*.json")]
    done = max(plans, key=lambda plan: sum(part.end for part in plan.account.partitions.values()))
    ((number, part),) = done.account.partitions.items()
    before = replace(done.account, claims={ALL: {number: Progress(part.start)}})
    account = Aggregation(OffsetPlan(done.terms, before), "/state", 1)
    state = State.open(str(made.folder / "model.state"), done.terms.drain_id)
    bounds, step = (part.start, part.end), (part.end - part.start) // HOLES
    finished = tuple((n, n + 1) for n in range(part.start + 1, part.end, step))
    begun, reported = Progress(part.start), Progress(part.start + 1, finished)
    counts = {number: Counts(HOLES, HOLES)}

    given_s = time.process_time()
    subs = {shard: {number: HOLES} for shard in range(TASKS)}
    of = account.begin(1, TASKS, {number: bounds}, {number: (bounds,)}, subs, {})
    share = TaskShare({number: TaskInput(*bounds, HOLES, 0)})
    state.give(1, of.number, {task.shard.number: share for _, task in account.free()})
    give_s = time.process_time() - given_s

    records = [
        encode_record(
            TaskRecord({task.claim: {number: reported}}, counts), {task.claim: {number: begun}}
        )
        for task in of.tasks
    ]
    folded_s = time.process_time()
    for task, record in zip(of.tasks, records, strict=True):
        account.add_progress(of, task, decode_line(record, Head))
    account.claims()
    fold_s = time.process_time() - folded_s

    ended_s = time.process_time()
    account.end_slice(of)
    return give_s + time.process_time() - ended_s, fold_s

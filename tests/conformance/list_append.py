"""List-append histories, and two ways to check them: Elle, and a small checker of our own.

A transaction appends elements to lists, by key, and reads whole lists. No element is appended
twice to a list, so each read tells which transactions came before it and in which order.

Source of the idea and of the names of anomalies: Elle, https://github.com/jepsen-io/elle, and
"Elle: Inferring Isolation Anomalies from Experimental Observations", Kingsbury and Alvaro, VLDB
2020, https://arxiv.org/abs/2003.10554; its dependencies are those of Adya's thesis. The histories
are written as elle-cli reads them, https://github.com/ligurio/elle-cli.

Elle itself comes from Clojars and elle-cli from the releases of its repository, and neither is in a
registry that this suite reaches. So ``elle_cli`` gives its jar where somebody has put one, and
every history goes through ``anomalies`` whether or not. That function is written anew, from the
paper, for strict serializability alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

JAR = "DRAINER_ELLE_CLI"  # the environment variable with the path of a jar of elle-cli
ELLE_S = 300.0

Element = int
Step = tuple[str, str, Any]  # ("append", key, element), or ("r", key, elements or None)
Anomalies = dict[str, list[str]]


@dataclass(frozen=True)
class Operation:
    """One line of a history. ``kind`` is ``invoke``, or how it ended: ``ok``, ``fail``, ``info``.

    What ended with ``fail`` has certainly not happened; with ``info``, nobody can tell.
    """

    kind: str
    process: int
    steps: tuple[Step, ...]


class History:
    """A history that is being written, in the order of real time."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._idle: list[int] = []
        self._processes = 0

    def invoke(self, *steps: Step) -> int:
        """Begin a transaction on a process that is idle; the number of that process."""
        if self._idle:
            process = self._idle.pop()
        else:
            process, self._processes = self._processes, self._processes + 1
        asked = tuple((name, key, None if name == "r" else what) for name, key, what in steps)
        self.operations.append(Operation("invoke", process, asked))
        return process

    def end(self, process: int, kind: str, *steps: Step) -> None:
        """End the transaction of a process. One that ended with ``info`` is never used again."""
        self.operations.append(Operation(kind, process, steps))
        if kind != "info":
            self._idle.append(process)

    def add(self, *steps: Step) -> None:
        """Add a transaction that nothing else runs beside."""
        self.end(self.invoke(*steps), "ok", *steps)

    def write(self, path: Path) -> Path:
        """Write it as elle-cli reads JSON."""
        lines = [
            {
                "index": index,
                "time": index,
                "type": each.kind,
                "process": each.process,
                "f": "txn",
                "value": each.steps,
            }
            for index, each in enumerate(self.operations)
        ]
        path.write_text(json.dumps(lines))
        return path


@dataclass(eq=False)
class _Transaction:
    began: int
    steps: tuple[Step, ...]
    kind: str = "info"
    ended: int = -1

    def __str__(self) -> str:
        return f"{self.kind} {[(name, key, _short(what)) for name, key, what in self.steps]}"

    def of(self, name: str) -> Iterator[tuple[str, Any]]:
        return ((key, what) for step, key, what in self.steps if step == name)


def _short(what: Any) -> Any:
    return f"…{what[-3:]}" if isinstance(what, Sequence) and len(what) > 3 else what


def anomalies(history: History) -> Anomalies:
    """Anomalies of a history that should be strictly serializable, by Elle's names; none is good.

    ``lost`` has no name in Elle: an append that ended well is in no read that began after it. Elle
    finds the cycle that this makes, and so does this function.
    """
    return _Analysis(history).found


# Which dependencies a cycle needs to be of a class, from the worst on.
_CLASSES = {"G0": {"ww"}, "G1c": {"ww", "wr"}, "G2": {"ww", "wr", "rw"}}
_Node = Hashable


@dataclass
class _Analysis:
    history: History
    found: Anomalies = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.edges: dict[str, set[tuple[_Node, _Node]]] = defaultdict(set)
        self.transactions = list(self._paired())
        self.writers: dict[tuple[str, Element], _Transaction] = {}
        self._index_appends()
        self.ended = [each for each in self.transactions if each.kind == "ok"]
        self.orders: dict[str, tuple[Element, ...]] = {}
        for each in self.ended:
            self._check_inside(each)
            for key, elements in each.of("r"):
                self._check_read(each, key, tuple(elements))
        self._check_orders()
        self._depend()
        self._find_lost()
        self._find_cycles()

    def _note(self, anomaly: str, what: object) -> None:
        self.found.setdefault(anomaly, []).append(str(what))

    def _paired(self) -> Iterator[_Transaction]:
        """Transactions, and the edges of real time: one chain of moments that they hang on."""
        open_: dict[int, _Transaction] = {}
        moment: int | None = None
        for index, line in enumerate(self.history.operations):
            if line.kind == "invoke":
                open_[line.process] = begun = _Transaction(index, line.steps)
                if moment is not None:
                    self.edges["realtime"].add((moment, begun))
                yield begun
                continue
            ended = open_.pop(line.process)
            ended.kind, ended.ended = line.kind, index
            if line.kind == "ok":
                ended.steps = line.steps
                self.edges["realtime"].add((ended, index))
                if moment is not None:
                    self.edges["realtime"].add((moment, index))
                moment = index

    def _index_appends(self) -> None:
        for each in self.transactions:
            for key, element in each.of("append"):
                before = self.writers.get((key, element))
                if before is None or before.kind == "fail":
                    self.writers[key, element] = each
                elif each.kind != "fail":
                    self._note("duplicate-appends", f"{key} {element}: {each}")

    def _check_inside(self, each: _Transaction) -> None:
        """What a transaction reads agrees with what it did before."""
        known: dict[str, tuple[Element, ...]] = {}
        added: dict[str, tuple[Element, ...]] = defaultdict(tuple)
        for name, key, what in each.steps:
            if name == "append":
                added[key] += (what,)
                continue
            read = tuple(what)
            whole = key not in known or read == known[key] + added[key]
            if not whole or read[len(read) - len(added[key]) :] != added[key]:
                self._note("internal", each)
            known[key], added[key] = read, ()

    def _check_read(self, reader: _Transaction, key: str, elements: tuple[Element, ...]) -> None:
        for element, count in Counter(elements).items():
            writer = self.writers.get((key, element))
            if count > 1:
                self._note("duplicate-elements", f"{key} {element}, {count} times: {reader}")
            if writer is None:
                self._note("garbage", f"nobody appended {element} to {key}: {reader}")
            elif writer.kind == "fail":
                self._note("G1a", f"{key} {element} was not appended: {reader}")
        if elements and (writer := self.writers.get((key, elements[-1]))) not in (None, reader):
            assert writer is not None
            *_, last = (element for where, element in writer.of("append") if where == key)
            if last != elements[-1]:
                self._note("G1b", f"{key} ends with {elements[-1]} in {reader}")
        if len(elements) > len(self.orders.get(key, ())):
            self.orders[key] = elements

    def _check_orders(self) -> None:
        for each in self.ended:
            for key, elements in each.of("r"):
                order = self.orders.get(key, ())
                if tuple(elements) != order[: len(elements)]:
                    self._note("incompatible-order", f"{key}: {each}")

    def _depend(self) -> None:
        """Draw an edge from each transaction to those that depend on it, by kind."""
        unread: dict[str, list[_Transaction]] = defaultdict(list)
        place = {(k, e): n for k, order in self.orders.items() for n, e in enumerate(order)}
        for (key, element), writer in self.writers.items():
            if (key, element) not in place and writer.kind == "ok":
                unread[key].append(writer)  # and so it comes after all that was read

        def after(key: str, number: int) -> Iterable[_Transaction | None]:
            order = self.orders.get(key, ())
            if number < len(order):
                return [self.writers.get((key, order[number]))]
            return unread[key]

        for key, order in self.orders.items():
            for number, element in enumerate(order):
                self._link("ww", self.writers.get((key, element)), after(key, number + 1))
        for each in self.ended:
            for key, elements in each.of("r"):
                if elements:
                    self._link("wr", self.writers.get((key, elements[-1])), [each])
                self._link("rw", each, after(key, len(elements)))

    def _link(
        self, kind: str, one: _Transaction | None, others: Iterable[_Transaction | None]
    ) -> None:
        for other in others:
            if one is not None and other is not None and one is not other:
                self.edges[kind].add((one, other))

    def _find_lost(self) -> None:
        last = {key: each.began for each in self.ended for key, _ in each.of("r")}
        read = {(key, e) for each in self.ended for key, found in each.of("r") for e in found}
        for (key, element), writer in self.writers.items():
            acknowledged = writer.kind == "ok" and writer.ended < last.get(key, -1)
            if acknowledged and (key, element) not in read:
                self._note("lost", f"{key} {element}: {writer}")

    def _find_cycles(self) -> None:
        for name, kinds in _CLASSES.items():
            for more, suffix in ((set[str](), ""), ({"realtime"}, "-realtime")):
                cycle = self._cycle(kinds | more)
                if cycle:
                    self._note(name + suffix, " < ".join(map(str, cycle)))
                    return

    def _cycle(self, kinds: set[str]) -> list[_Node]:
        after: dict[_Node, list[_Node]] = defaultdict(list)
        for kind in sorted(kinds):
            for one, other in self.edges[kind]:
                after[one].append(other)
        try:
            TopologicalSorter(after).prepare()
        except CycleError as error:
            found: list[_Node] = error.args[1]
            return [each for each in found if not isinstance(each, int)]
        return []


def elle_cli() -> Path | None:
    """The jar of elle-cli: the environment's, or one in the user's cache; None without Java too."""
    there = [Path(os.environ[JAR])] if JAR in os.environ else []
    there += sorted((user_cache_path("drainer") / "tests").glob("elle-cli*.jar"), reverse=True)
    return there[0] if there and shutil.which("java") else None


def elle_says(jar: Path, paths: Sequence[Path]) -> Mapping[Path, bool]:
    """Whether Elle finds each history strictly serializable."""
    model = ["--model", "list-append", "--consistency-models", "strict-serializable"]
    found = subprocess.run(
        ["java", "-jar", str(jar), *model, "--format", "json", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        timeout=ELLE_S,
        cwd=paths[0].parent,  # it may leave classes that it made
    )
    rows = [line.split("\t") for line in found.stdout.splitlines() if "\t" in line]
    said = {Path(row[0].strip()): row[1].strip() for row in rows}
    assert said.keys() == set(paths), found.stdout + found.stderr
    assert set(said.values()) <= {"true", "false"}, found.stdout + found.stderr
    return {path: said[path] == "true" for path in paths}

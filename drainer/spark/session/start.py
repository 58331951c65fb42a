"""Starts Spark sessions, with the settings that a drain needs to be safe."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

from py4j import java_gateway  # type: ignore[import-untyped]
from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark import __version__ as version
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from drainer.errors import DrainerError, Passing, Refused
from drainer.host.calls import in_a_thread
from drainer.loading.extensions import ensure_installed
from drainer.spark.session import archive
from drainer.spark.session.failure import spark_failures
from drainer.spark.session.session import Session, Slots
from drainer.spark.session.settings import (
    ARCHIVES,
    PY_FILES,
    TASKS,
    SessionSettings,
    SparkSettings,
    check_conf,
    java_for_spark,
    shown_master,
)
from drainer.text.secret import SECRET, hides

LOCAL = "local[2]"
_LOGGING = Path(__file__).with_name("log4j2.properties")

# On one machine the JVM competes with the Python workers for the cores, and nothing is sent over a
# network, so compression would only cost time.
LOCAL_CONF = {
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # All users of this machine can open Spark's UI. They must not end a query there, nor see a
    # secret. Its port is any that is free, since drainer prints the address.
    "spark.ui.port": "0",
    "spark.ui.killEnabled": "false",
    "spark.redaction.regex": f"(?i){SECRET.pattern}",
}
# The JVM only moves rows, so optimising its code takes longer than it saves. Spark loads thousands
# of classes: they are not verified, and the heap is not collected to make room for them.
LOCAL_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
    " -XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)
# Spark starts its workers with ``python -m`` in the working folder, which may be another user's. So
# they must not import anything from there.
IMPORTS_NOTHING_HERE: dict[str, Any] = {"spark.executorEnv.PYTHONSAFEPATH": "1"}
DAEMON = "drainer.spark.task.daemon"  # It forks the workers.
LOOPBACK = "127.0.0.1"
_DIR, _DIRS = "spark.local.dir", "SPARK_LOCAL_DIRS"
_ADDRESS = "SPARK_LOCAL_IP"  # The address on which Spark's UI listens.
_PREFIX, STALE_S = "drainer-spark-", 3600.0  # Spark fills a new folder long before that.
_PRINTED_EACH_TIME = "WARNING: Using incubator modules"
_SERVES = "(serve_forever)"  # It is in the name of a thread that serves a socket.
_LOCAL = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?")
_AT = re.compile(r"(?:k8s|spark)://(?:https?://)?([^/]+)")
RETRIES = 4  # A call to a server of Spark Connect is repeated this often, within some five seconds.
ANSWER_S = 4.0  # After this time, drainer prints what it waits for.
REACH_S = 3.0  # A master has this long to accept a connection.

T = TypeVar("T")
PrintLine = Callable[[str], None]


def _ignore(_: str) -> None: ...


@contextmanager
def session_on(
    settings: SessionSettings,
    name: str,
    *,
    print_line: PrintLine = _ignore,
    spark: SparkSession | Starting | None = None,
) -> Iterator[Session]:
    """Open a session: ``spark``, the one of this process, or a new one until the block ends.

    ``print_line`` gets a line when Spark has not answered for some seconds. Raises UsageError and
    Refused as ``spark_session`` does, and Refused if no master answers.
    """
    spark = spark or SparkSession.getActiveSession()
    if spark is None and settings.is_remote:
        yield from _on_server(settings, name, print_line)
        return
    if spark is None or (isinstance(spark, Starting) and spark.is_taken):
        spark = Starting(settings, name)
    if not isinstance(spark, Starting):
        session = Session.of(spark)
        session.ensure(settings.of_spark)
        yield session
        return
    begun = spark.result(print_line)
    try:
        with redirect_stderr(cast("TextIO", _WithoutThreads(sys.stderr, spark.servers))):
            yield Session(begun, is_own=True)
    finally:
        # Ctrl-C must not interrupt the call: py4j would take its answer for that of the next call.
        with suppress(DrainerError), spark_failures():
            interruptible(begun.stop, interrupted=lambda: None)


class Starting:
    """A session that starts in another thread. It is taken by ``result``, or ended by ``close``.

    ``java`` has options of the JVM. ``gateway`` is the future of the gateway to the JVM. It is
    cancelled if the JVM does not start. Raises Refused if no master answers.
    """

    def __init__(self, settings: SessionSettings, name: str, java: str = "") -> None:
        _ensure_master(settings.master)
        self._settings = settings
        self.is_taken = False
        self._before = set(threading.enumerate())
        self.gateway = Future[JavaGateway]()
        self._session = in_a_thread(self._start, name, java)

    def _start(self, name: str, java: str) -> SparkSession:
        conf = self._settings.of_spark
        if self._settings.is_local:
            java = f"{LOCAL_JAVA}{java or archive.options_to_use()}"
            conf = LOCAL_CONF | conf
        # Since PySpark 4.0, the first call of py4j imports this, which takes half a second.
        if not version.startswith("3."):
            in_a_thread(import_module, "pyspark.testing.utils")
        try:
            return _started(self._settings.master, name, conf, "off", java, self.gateway)
        finally:
            self.gateway.cancel()

    @property
    def servers(self) -> Set[threading.Thread]:
        """The threads in which the session serves sockets."""
        return {each for each in threading.enumerate() if _SERVES in each.name} - self._before

    def result(self, print_line: PrintLine = _ignore) -> SparkSession:
        """Wait for the session, and return it. ``print_line`` gets a line if that takes long.

        Raises UsageError and Refused as ``spark_session`` does. If this is interrupted, it ends the
        JVM.
        """
        late = f"Spark on {self._settings.master} is still starting"
        with spark_failures():
            try:
                session = awaited(self._session, late, print_line)
            except KeyboardInterrupt:
                self.kill()
                raise
        self.is_taken = True
        return session

    def close(self) -> None:
        """End the JVM, once it runs, unless the session was taken."""
        if not self.is_taken:
            self.kill()

    def kill(self) -> None:
        """Wait until the JVM runs, and kill it. A session that still starts then fails unseen."""
        with suppress(CancelledError):
            self.gateway.result().proc.kill()


@contextmanager
def beginning(settings: SparkSettings, drain_id: str) -> Iterator[SparkSession | Starting]:
    """Begin to start the session of a drain, unless this process has one.

    It ends with the block if nobody has taken it by then.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with closing(Starting(settings, _name_of(drain_id))) as starting:
        yield starting


def _name_of(drain_id: str) -> str:
    return f"drainer {drain_id}"


class _WithoutThreads:
    """Standard error, without what some threads print.

    If the JVM is killed, PySpark's server of accumulators prints a traceback, which says nothing
    that drainer's own error does not say.
    """

    def __init__(self, stream: TextIO, threads: Set[threading.Thread]) -> None:
        self._stream, self._threads = stream, threads

    def write(self, text: str) -> int:
        quiet = threading.current_thread() in self._threads
        return len(text) if quiet else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _on_server(settings: SessionSettings, name: str, print_line: PrintLine) -> Iterator[Session]:
    """Open a session on a server of Spark Connect until the block ends."""
    ensure_installed("connect", "Spark Connect")
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - of the extra

    builder = SparkSession.builder.remote(settings.master).appName(name)
    for setting, value in settings.of_spark.items():
        if setting not in (PY_FILES, ARCHIVES):
            builder = builder.config(setting, value)
    with spark_failures():
        late = f"the server at {shown_master(settings.master)} does not answer yet"
        spark = interruptible(builder.getOrCreate, late, print_line)
    # By default, the client repeats calls to a server that is gone for ten minutes. It also warns
    # when it gives up, but the error says enough.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    spark.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
    try:
        session = Session.of(spark, is_own=True)
        with spark_failures():
            # The settings of a server for files with code are fixed, so they are sent to it.
            for path in settings.files(PY_FILES):
                session.add_module(path)
            for path in settings.files(ARCHIVES):
                spark.addArtifacts(path, archive=True)
        yield session
    finally:
        with suppress(DrainerError), spark_failures():
            spark.stop()


@contextmanager
def drain_session(
    settings: SparkSettings,
    spark: SparkSession | Starting | None,
    drain_id: str,
    print_line: PrintLine,
) -> Iterator[tuple[Session, Slots]]:
    """Open a session for a drain, beside one as ``session_on`` opens it, and count its slots."""
    started = session_on(settings, _name_of(drain_id), print_line=print_line, spark=spark)
    with started as base, ExitStack() as opened:

        def begin() -> tuple[Session, Slots]:
            session = opened.enter_context(base.draining())
            grows = session.conf("spark.dynamicAllocation.enabled") == "true"
            count, wanted = session.slots(), settings.tasks
            # Tasks that share a core cost more than they gain.
            if wanted is None and settings.is_local and count > _cores():
                wanted = _cores()
            return session, Slots(count, wanted, grows)

        with spark_failures():
            session, found = interruptible(begin)
        given = base.conf("spark.default.parallelism")
        if given and settings.tasks is None and not session.is_remote:
            print_line(
                f"drainer takes spark.default.parallelism ({given}) for the number of tasks that"
                f" run at once: set {TASKS} if there are fewer cores"
            )
        yield session, found


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # macOS has no such limit.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def interruptible(
    call: Callable[[], T],
    late: str = "",
    print_line: PrintLine = _ignore,
    interrupted: Callable[[], object] | None = None,
) -> T:
    """Make a call to Spark in another thread, and return its result.

    So Ctrl-C interrupts this thread, and not py4j in the middle of a call. It raises
    KeyboardInterrupt, or calls ``interrupted`` if that is given. If the call takes longer than
    ``ANSWER_S``, ``print_line`` gets the text ``late``.
    """
    return awaited(in_a_thread(call), late, print_line, interrupted)


def awaited(
    answer: Future[T],
    late: str,
    print_line: PrintLine,
    interrupted: Callable[[], object] | None = None,
) -> T:
    """Wait for a call that another thread makes, as ``interruptible`` does."""
    while True:
        try:
            return answer.result(ANSWER_S)
        except TimeoutError:
            if answer.done():
                raise
        except KeyboardInterrupt:
            if interrupted is None:
                raise
            interrupted()
        if late:
            print_line(late)
            late = ""


def _ensure_master(master: str) -> None:
    """Ensure that something listens at a master's address. Spark itself would try for a minute.

    Raises Passing.
    """
    found = _AT.match(master)
    failed: OSError | None = None
    for place in found[1].split(",") if found else ():
        host, _, port = place.rpartition(":")
        if not port.isdecimal():
            return  # Spark reports what is wrong with the address.
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        except OSError as error:
            failed = error
        else:
            return
    if failed is not None:
        raise Passing(
            f"Spark's master does not answer at {master}: {failed}",
            hint="Use the URL that the master's web page shows.",
        )


def spark_session(
    master: str = LOCAL,
    name: str = "drainer",
    conf: Mapping[str, str] | None = None,
    *,
    log: str = "error",
    java: str = "",
) -> SparkSession:
    """Start a session on a master with the settings that drainer depends on. Stop it when done.

    Workers run the Python of this process, unless ``spark.pyspark.python`` or else the variable
    ``PYSPARK_PYTHON`` names another one. On a cluster, that may be the Python of an environment
    that Spark sends to the executors.

    Args:
        conf: further settings of Spark.
        log: the lowest level of log lines that Spark writes to stderr; ``off`` for no lines.
        java: options of the driver's JVM.

    Raises:
        UsageError: if ``conf``, or a session that runs already, has a different value for a setting
            that drainer depends on.
        Refused: if there is no Java for Spark.
    """
    chosen = {"spark.sql.execution.arrow.pyspark.enabled": "true", **(conf or {})}
    spark = _started(master, name, chosen, log, java, Future())
    for key, value in chosen.items():  # The session may have existed with other settings.
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    return spark


def write_archive() -> Path:
    """Write the archive of Spark's classes for later local sessions, and return its place.

    Raises DrainerError.
    """
    file = archive.begin_archive()
    settings = SessionSettings("local[1]")
    starting = Starting(settings, "drainer spark warm", archive.options_to_write(file))
    try:
        spark = starting.result()
        return interruptible(
            partial(archive.finish_archive, file, spark, starting.gateway.result())
        )
    finally:
        starting.kill()  # It would write the file later if this was interrupted.
        file.unlink(missing_ok=True)


def _started(
    master: str,
    name: str,
    chosen: Mapping[str, str],
    log: str,
    java: str,
    launched: Future[JavaGateway],
) -> SparkSession:
    """Return the session of this process; start one if there is none.

    ``launched`` gets the gateway as soon as the JVM runs.
    """
    check_conf(chosen)
    java_for_spark()
    settings = {
        "spark.pyspark.python": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "spark.pyspark.driver.python": sys.executable,
        "spark.ui.showConsoleProgress": "false",  # It would garble drainer's view.
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        f" -Ddrainer.spark.log={chosen.get('spark.log.level', log)} {java}".rstrip(),
        "spark.speculation": "false",
        "spark.python.daemon.module": DAEMON,
    }
    # A program whose own imports come from the working folder needs them in its workers, too.
    if sys.path[0] not in ("", str(Path.cwd())):
        settings |= IMPORTS_NOTHING_HERE
    if master.startswith("local"):  # No other machine has to reach the driver.
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    # No other user of this machine may reach it either. Spark itself makes the secret for that.
    if _LOCAL.fullmatch(master):
        settings["spark.authenticate"] = "true"
    settings |= chosen
    # With this setting, Spark would print a line about the level, and before that also the lines
    # that the level is to hide.
    settings.pop("spark.log.level", None)
    # py4j uses the root logger, so only the file name tells its records from others.
    logging.getLogger().addFilter(lambda record: record.pathname != java_gateway.__file__)
    spark = SparkSession.getActiveSession()
    if spark is None:
        with _environment(master, settings):
            spark = _begin(master, name, settings, launched)
    # A session that existed already has its own settings.
    check_conf(dict(spark.sparkContext.getConf().getAll()))
    return spark


def _begin(
    master: str, name: str, settings: Mapping[str, str], launched: Future[JavaGateway]
) -> SparkSession:
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(name)
    conf.setAll(list(settings.items()))
    if _LOCAL.fullmatch(master) and _DIRS not in os.environ:
        conf.set(_DIR, private_folders(settings.get(_DIR) or tempfile.gettempdir()))
    gateway = None
    # If the variable is set, spark-submit has started the JVM.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # All users can see the arguments of a process, so the JVM gets no secret in them.
        shown = [(key, value) for key, value in settings.items() if not hides(key, value)]
        gateway = _launch(SparkConf(loadDefaults=False).setAll(shown))
        launched.set_result(gateway)
    SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.getOrCreate()


def private_folders(folders: str) -> str:
    """Make a folder for this user only in each of these ``folders``, and return the new ones.

    Spark keeps blocks of messages there, and lets all users read them. The new folders are removed
    at the end of this process. Those that killed drivers left empty are removed here. Raises
    Refused.
    """
    made = []
    for folder in folders.split(","):
        for left in Path(folder).glob(f"{_PREFIX}*"):
            with suppress(OSError):  # The folder of a driver that lives is not empty.
                if time.time() - left.stat().st_mtime > STALE_S:
                    left.rmdir()
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            made.append(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        except OSError as error:
            raise Refused(
                f"can't make a folder for Spark in {folder}: {error.strerror}",
                hint=f"Set {_DIR} to a folder that you may write to.",
            ) from None
        atexit.register(shutil.rmtree, made[-1], ignore_errors=True)
    return ",".join(made)


def _launch(conf: SparkConf) -> JavaGateway:
    # The JVM gets a process group of its own. So a signal that a terminal or a supervisor sends to
    # the whole group reaches only this process, which stops the JVM when its tasks have ended.
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="jvm-stderr", daemon=True).start()
    try:
        return launch_gateway(conf, {"start_new_session": True, "stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)


def _pass_on(pipe: int) -> None:
    """Copy what the JVM writes to stderr, without a warning that it prints at each start."""
    with open(pipe, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_PRINTED_EACH_TIME):
                sys.stderr.write(line)
                sys.stderr.flush()


@contextmanager
def _environment(master: str, settings: Mapping[str, str]) -> Iterator[None]:
    # A session does not use the settings spark.pyspark.*, which are for spark-submit. It uses these
    # variables, or else the first python3 on the path.
    variables = {
        "PYSPARK_PYTHON": settings["spark.pyspark.python"],
        "PYSPARK_DRIVER_PYTHON": settings["spark.pyspark.driver.python"],
    }
    if master.startswith("local"):
        variables[_ADDRESS] = os.environ.get(_ADDRESS, LOOPBACK)
    if _LOCAL.fullmatch(master) and (named := os.environ.get(_DIRS)):
        variables[_DIRS] = private_folders(named)  # Spark prefers the variable to the setting.
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

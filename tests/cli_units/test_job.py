"""``drainer job``: manifests that Kubernetes takes, and that hold no secret."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import typer
import yaml
from typer.testing import CliRunner

from drainer import errors
from drainer.cli.app import app
from drainer.cli.declared import commands_of, declared_by, given_in
from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED
from drainer.job.manifest import CLIENT, HANDLERS, job_name
from drainer.view.terminal import Form

SCHEMAS = json.loads(Path(__file__).with_name("kubernetes-1.31.json").read_text())
KINDS = {"Job": "io.k8s.api.batch.v1.Job", "ConfigMap": "io.k8s.api.core.v1.ConfigMap"}
WHAT = ("--topic", "orders", "--group", "indexer")
WHERE = ("-b", "kafka:9092")
HANDLER = "import json\nimport helper\n\ndef handle(sub):\n    print('ä\\t')  # trailing  \n"


@pytest.fixture
def handler(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("from neighbour import X\n")
    (tmp_path / "neighbour.py").write_text("X = 1")
    (tmp_path / "unused.py").write_text("Y = 1\n")
    file = tmp_path / "h.py"
    file.write_text(HANDLER)
    return file


def printed(*words: str, code: int = 0, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    found = CliRunner().invoke(app, ["job", *words], prog_name="drainer", env=env)
    assert found.exit_code == code, found.stderr
    return found.stdout, found.stderr


def manifests(*words: str, env: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the manifests by kind. Each is valid by the schema of its kind."""
    found = {each["kind"]: each for each in yaml.safe_load_all(printed(*words, env=env)[0])}
    for kind, each in found.items():
        schema = {"$ref": f"#/$defs/{KINDS[kind]}", "$defs": SCHEMAS["$defs"]}
        jsonschema.Draft202012Validator(schema).validate(each)
    return found


def pod(found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = found["Job"]["spec"]["template"]["spec"]
    return spec


def args(found: Mapping[str, dict[str, Any]]) -> list[str]:
    words: list[str] = pod(found)["containers"][0]["args"]
    return words


def given(words: list[str]) -> dict[str, Any]:
    """Return what a command gets, by field, as it takes these words."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("drainer", [*words])
    name, command, rest = command.resolve_command(context, [*words])
    assert name in commands_of(context.command)
    return given_in(command.make_context(name, rest, parent=context), declared_by(command).values())


def test_the_pod_runs_the_same_options_and_what_a_scheduler_needs(handler: Path) -> None:
    own = (
        *("--handler", f"{handler}:Reindex", "--retries", "5", "--on-failure", "dead-letter"),
        *("--tune", "grace=90s", "--tune", "breaker=off", "-c", "auto", "--partition", "3"),
        *("--first", "payload.customer == 42 and 'a b'", "--set", "index=docs", "--no-commit"),
        *("--from", "earliest", "--accept-dead-letters", "--wait-for-group", "10m"),
    )

    found = manifests(*WHAT, *WHERE, *own, env={"DRAINER_RATE": "300/m"})

    as_run, in_pod = given(["run", *WHAT, *WHERE, *own]), given(args(found))
    for_schedulers = {n: in_pod.pop(n) for n in in_pod.keys() - as_run.keys()}
    assert for_schedulers == {
        "plan": "kafka://drainer-plans",
        "or_resume": True,
        "yes": True,
        "output": Form.JSON,
        "metrics": ("0.0.0.0", 9464),
        "log_format": "json",
        "rate": 5.0,
    }
    assert in_pod.pop("handler") == f"{HANDLERS}/h.py:Reindex"
    as_run.pop("handler")
    as_run.pop("tune", None)
    in_pod.pop("tune", None)
    assert in_pod == as_run
    assert pod(found)["terminationGracePeriodSeconds"] == 90 + 20


def test_the_handler_and_what_it_imports_go_into_a_config_map(handler: Path) -> None:
    found = manifests(*WHAT, *WHERE, "--handler", str(handler))
    names = ("h.py", "helper.py", "neighbour.py")
    assert found["ConfigMap"]["data"] == {n: handler.with_name(n).read_text() for n in names}
    volumes = {each["name"]: each for each in pod(found)["volumes"]}
    mounts = {
        each["name"]: each["mountPath"] for each in pod(found)["containers"][0]["volumeMounts"]
    }
    assert volumes["handler"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    assert mounts == {"tmp": "/tmp", "handler": HANDLERS}

    alone = manifests(*WHAT, *WHERE, "--handler", "count")
    assert alone.keys() == {"Job"}
    assert "The image must have" not in printed(*WHAT, *WHERE, "--handler", "count")[0]
    assert (
        "The image must have the handler shop.index:Reindex."
        in (printed(*WHAT, *WHERE, "--handler", "shop.index:Reindex")[0])
    )
    (handler.parent / "helper").mkdir()
    (handler.parent / "helper" / "__init__.py").touch()
    _, error = printed(*WHAT, *WHERE, "--handler", str(handler), code=2)
    assert "helper/__init__.py, which no ConfigMap can hold" in error


def test_decoders_splits_and_limits_that_are_files_are_mounted_too(handler: Path) -> None:
    split = handler.with_name("split.py")
    split.write_text("def split(message): ...\n")
    more = (
        "--set",
        "topic=wide",
        "--set",
        f"split={split}:split",
        "--value-format",
        f"{handler}:d",
    )
    found = manifests(*WHAT, *WHERE, "--handler", "produce", *more)
    assert {"h.py", "split.py"} < found["ConfigMap"]["data"].keys()
    assert f"split={HANDLERS}/split.py:split" in args(found)
    assert f"{HANDLERS}/h.py:d" in args(found)
    other = handler.parent / "other"
    other.mkdir()
    (other / "h.py").write_text("def d(data): ...\n")
    twice = ("--handler", f"{other}/h.py", "--value-format", f"{handler}:d")
    assert "two different files are named h.py" in printed(*WHAT, *WHERE, *twice, code=2)[1]


def test_no_secret_is_printed(tmp_path: Path) -> None:
    client = tmp_path / "client.properties"
    (ca := tmp_path / "ca.pem").touch()
    lines = "bootstrap.servers=kafka:9092", "sasl.password=hunter22", f"ssl.ca.location={ca}"
    client.write_text("\n".join(lines))
    client.chmod(0o600)
    where = ("--client-config", str(client), "--handler", "count")

    out, err = printed(*WHAT, *where)
    found = manifests(*WHAT, *where)

    assert "hunter22" not in out + err
    secret = next(each["secret"] for each in pod(found)["volumes"] if "secret" in each)
    created = f"kubectl create secret generic {secret['secretName']} --from-file=client.properties="
    assert f"# First: {created}{client}\n" in out
    assert f"# The pod needs {ca} of ssl.ca.location" in out
    assert f"--client-config {CLIENT}/client.properties" in shlex.join(args(found))
    for words in (("-X", "sasl.password=hunter22"), ("--set", "api_token=hunter22")):
        out, err = printed(*WHAT, *WHERE, "--handler", "count", *words, code=2)
        assert "would put a secret into the manifest" in err
        assert "hunter22" not in out + err
    place = "s3://bucket/a.json?access_key_id=hunter22"
    out, err = printed(*WHAT, *WHERE, "--handler", "count", "--plan", place, code=2)
    assert "the URI contains credentials" in err
    assert "hunter22" not in out + err


def test_each_exit_code_is_tried_again_or_fails_the_job() -> None:
    rules = manifests(*WHAT, *WHERE, "--handler", "count")["Job"]["spec"]["podFailurePolicy"][
        "rules"
    ]
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    fails, ignores = rules
    assert (fails["action"], fails["onExitCodes"]["operator"]) == ("FailJob", "In")
    again = {EXIT_INTERRUPTED, EXIT_DONE}
    assert set(fails["onExitCodes"]["values"]) == codes - again
    assert ignores["onPodConditions"][0]["type"] == "DisruptionTarget"


def test_the_pod_may_do_as_little_as_possible() -> None:
    found = pod(manifests(*WHAT, *WHERE, "--handler", "count"))
    (container,) = found["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert found["securityContext"]["runAsNonRoot"]
    assert not found["automountServiceAccountToken"]
    probes = {
        name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness")
    }
    assert probes == {"liveness": "/healthz", "readiness": "/readyz"}


@pytest.mark.parametrize(
    ("more", "memory"),
    [
        ((), "1088Mi"),
        (("--tune", "buffer=64MiB"), "512Mi"),
        (("--tune", "buffer=1GiB", "-c", "2000"), "4224Mi"),
    ],
)
def test_the_memory_follows_from_the_buffer_and_the_concurrency(
    more: tuple[str, ...], memory: str
) -> None:
    resources = pod(manifests(*WHAT, *WHERE, "--handler", "count", *more))["containers"][0][
        "resources"
    ]
    assert resources == {
        "requests": {"cpu": "1000m", "memory": memory},
        "limits": {"memory": memory},
    }


def test_what_a_person_has_to_change_is_said_above_the_job() -> None:
    out, _ = printed(*WHAT, "-b", "localhost:9092", "--handler", "count", "--plan", "/plans/p.json")
    assert "# In a pod, localhost:9092 is the pod itself: name others.\n" in out
    assert "# Mount a volume that all nodes share where /plans/p.json is to be.\n" in out
    out, err = printed(*WHAT, "-b", "127.0.0.1:1", "--handler", "count", "--latency", "10ms")
    assert "no estimate: " in err
    assert "One core is a guess, because no estimate could be made" in out


def test_a_deadline_and_a_name_mean_the_same_in_the_pod() -> None:
    found = manifests(*WHAT, *WHERE, "--handler", "count", "--deadline", "6h", "--name", "tonight")
    text = args(found)[args(found).index("--deadline") + 1]
    assert text[10:11] == "T"
    assert found["Job"]["metadata"]["name"] == "tonight"


def test_no_name_breaks_out_of_a_comment_or_of_its_field() -> None:
    odd = ("--topic", "orders", "--group", "a\n$name: b", "--handler", "shop:A\nkind: Pod")
    found = manifests(*odd, *WHERE)
    assert found["Job"]["metadata"]["name"] == "drain-orders-a-name-b"
    assert "a\n$name: b" in args(found)
    for name in ("Tonight", "a\nb", "-a", "a" * 53):
        _, error = printed(*WHAT, *WHERE, "--handler", "count", "--name", name, code=2)
        assert "--name" in error


@pytest.mark.parametrize(
    ("topic", "group", "name"),
    [
        ("orders", "indexer", "drain-orders-indexer"),
        ("shop.Orders_v2", "a/b ü", "drain-shop-orders-v2-a-b"),
        ("t" * 100, "g", f"drain-{'t' * 37}-7a192bf7"),
        ("t" * 100, "h", f"drain-{'t' * 37}-935a3129"),
    ],
)
def test_the_name_of_a_job_is_one_that_kubernetes_allows(topic: str, group: str, name: str) -> None:
    assert job_name(topic, group) == name


def test_the_manifests_are_in_the_object_for_programs() -> None:
    out, _ = printed(*WHAT, *WHERE, "--handler", "count", "-o", "json")
    answer = json.loads(out)
    assert (answer["status"], answer["exit_code"]) == ("ok", 0)
    assert yaml.safe_load(answer["manifests"])["kind"] == "Job"

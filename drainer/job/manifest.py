"""The manifests of a Kubernetes Job that runs ``drainer run --or-resume``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from math import ceil
from pathlib import Path
from string import Template
from typing import Any

import yaml

from drainer import __version__
from drainer.errors import UsageError, raised_as
from drainer.loading.importing import add_source
from drainer.model.option import DURATION
from drainer.text.escape import printable

PORT = 9464
HANDLERS, CLIENT = "/etc/drainer/handler", "/etc/drainer/client"
# The last commit, the last write of the plan, and the end of Python take this long at most.
END_S = 20
NAME_MOST = 52  # The names of a Job's pods, and of what belongs to it, are longer than its own.
CONFIG_MAP_MOST = 1024 * 1024  # bytes that Kubernetes allows
_STEP = 64 * 1024 * 1024  # Memory is requested in multiples of this.
_IN_IMAGE = "Put the handler into the image, and name it by its module."


@dataclass(eq=False)
class Job:
    """A drain that a Job runs.

    Attributes:
        what: the topic and the group in words.
        client: the client file, whose content goes into a Secret that a person makes.
        args: the words of the command, after ``drainer``.
        code: the files of the handler by name; empty if the image has it.
        notes: what a person has to do or to check before the Job runs.
    """

    name: str
    image: str
    what: str
    grace_s: float
    client: Path | None = None
    args: list[str] = field(default_factory=list)
    code: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, code: Mapping[str, str]) -> None:
        """Add files that the pod needs. Raises UsageError if two different files have one name."""
        for name, text in code.items():
            if self.code.setdefault(name, text) != text:
                raise UsageError(f"two different files are named {name}", hint="Rename one.")

    def manifests(self, cores: float, memory_bytes: int, why: str) -> str:
        """Return the YAML of the ConfigMap, if there is one, and of the Job, without any secret.

        ``why`` says where the numbers of cores and bytes come from.
        """
        notes = self.notes
        mounted: dict[str, tuple[str, dict[str, Any]]] = {"tmp": ("/tmp", {"emptyDir": {}})}
        if self.code:
            mounted["handler"] = HANDLERS, {"configMap": {"name": f"{self.name}-handler"}}
        if self.client is not None:
            secret = f"{self.name}-client"
            mounted["client"] = CLIENT, {"secret": {"secretName": secret}}
            makes = f"kubectl create secret generic {secret} --from-file={self.client.name}"
            notes = [f"First: {makes}={self.client}", *notes]
        job = Template((files(__package__) / "job.yaml").read_text("utf-8")).substitute(
            version=__version__,
            what=printable(self.what),
            name=self.name,
            notes="\n".join(f"# {printable(note)}" for note in notes) or "#",
            grace=DURATION.show(self.grace_s),
            margin=END_S,
            stop_s=ceil(self.grace_s) + END_S,
            image=json.dumps(self.image),
            args=_listed(10, self.args),
            why=printable(why),
            cpu=f"{max(1, ceil(cores * 10)) * 100}m",
            memory=f"{ceil(memory_bytes / _STEP) * 64}Mi",
            port=PORT,
            mounts=_listed(10, [{"name": n, "mountPath": at} for n, (at, _) in mounted.items()]),
            volumes=_listed(6, [{"name": n, **source} for n, (_, source) in mounted.items()]),
        )
        return f"{self._config_map()}{job}"

    def _config_map(self) -> str:
        if not self.code:
            return ""
        if sum(len(text.encode()) for text in self.code.values()) > CONFIG_MAP_MOST:
            raise UsageError("the handler is too large for a ConfigMap", hint=_IN_IMAGE)
        names = {"kind": "ConfigMap", "metadata": {"name": f"{self.name}-handler"}}
        found = {"apiVersion": "v1", **names, "data": self.code}
        return f"{yaml.dump(found, Dumper=_Dumper, sort_keys=False, allow_unicode=True)}---\n"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types.
    """Writes texts of several lines as they are, so that a person can read the code."""


def _text(dumper: yaml.SafeDumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _listed(indent: int, items: Sequence[object]) -> str:
    """Return the items of a list in YAML. Each is written as JSON, which is YAML, too."""
    return "\n".join(f"{' ' * indent}- {json.dumps(each, ensure_ascii=False)}" for each in items)


def parse_name(text: str) -> str:
    """Return a name that Kubernetes allows for a Job. Raises UsageError for any other."""
    if len(text) > NAME_MOST or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text):
        about = f"{text!r} is not a name of a Job: up to {NAME_MOST} letters a-z, digits and dashes"
        raise UsageError(about, hint="Give one, such as drain-tonight.")
    return text


def job_name(topic: str, group: str) -> str:
    """Return a name that Kubernetes allows for the Job of a topic and a group."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"drain-{topic}-{group}".lower())
    if len(plain) > NAME_MOST:  # Names that begin in the same way must stay different.
        pair = f"{topic}\0{group}".encode("utf-8", "backslashreplace")
        end = f"-{sha256(pair).hexdigest()[:8]}"
        plain = plain[: NAME_MOST - len(end)].strip("-") + end
    return plain.strip("-")


def code_of(file: Path) -> dict[str, str]:
    """Return the text of a handler's file, and of the files beside it that it imports, by name.

    Raises UsageError if a file can't be read, or if it imports a package in the same folder.
    """
    found: dict[Path, bytes] = {}
    path = file.absolute()
    add_source(path, path.parent, path.with_suffix(""), found)
    if path not in found:
        raise UsageError(f"you can't read the handler file {file}", hint="Make it readable.")
    if inner := [each for each in found if each.parent != path.parent]:
        why = f"{file} imports {inner[0]}, which no ConfigMap can hold beside it"
        raise UsageError(why, hint=_IN_IMAGE)
    with raised_as(UsageError, UnicodeDecodeError, about=f"{file}: ", hint="Write it in UTF-8."):
        return {each.name: code.decode() for each, code in found.items()}

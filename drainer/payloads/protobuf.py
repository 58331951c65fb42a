"""Protobuf by the text or the descriptor of a registry, without generated classes."""

from __future__ import annotations

import errno
import subprocess
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM
from tempfile import TemporaryDirectory
from typing import Any

import grpc_tools
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from drainer.decoding import Undecodable
from drainer.payloads.registry import Schema
from drainer.process import bound_to_parent, python_module

MAIN = "drainer/main.proto"
COMPILE_S = 60.0
INDEX_BITS = 63
_OF_NAMES = errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR
_TOOLS = Path(grpc_tools.__file__).parent
# With Google's own files, and those that googleapis-common-protos installs beside the tools.
_INCLUDED = [f"-I{_TOOLS / '_proto'}", f"-I{_TOOLS.parent}"]


def protobuf(schema: Schema) -> Callable[[bytes, bytes | None], Any]:
    """Make a reader of messages as dictionaries, by the names of the schema.

    Fields without presence are there with their defaults, others only if set. Enums are names.
    """
    files = compiled({**schema.files(), MAIN: schema}, MAIN)
    pool = DescriptorPool()  # its own: versions of a schema have the same names
    for file in files.file:
        pool.Add(file)
    main = next(file for file in files.file if file.name == MAIN)
    readers: dict[tuple[int, ...], Callable[[bytes], Any]] = {}

    def read(body: bytes, beside: bytes | None) -> Any:
        indexes, rest = message_indexes(body if beside is None else beside)
        found = readers.get(indexes)
        if found is None:
            descriptor = pool.FindMessageTypeByName(_name_at(main, indexes))
            made, as_dict = GetMessageClass(descriptor), _as_dict(descriptor, {})
            found = readers[indexes] = lambda data: as_dict(made.FromString(data))
        return found(rest if beside is None else body)

    return read


def message_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The place of a message's type in its file, and what follows it. Raises Undecodable."""
    numbers: list[int] = []
    value = shift = 0
    for at, byte in enumerate(data, 1):
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > INDEX_BITS:
            break
        if byte & 0x80:
            continue
        numbers.append(value >> 1 ^ -(value & 1))
        if numbers[0] <= 0 or len(numbers) > numbers[0]:
            return tuple(numbers[1:]) or (0,), data[at:]
        value = shift = 0
    raise Undecodable("the place of its type in the schema is cut off, or none")


def _name_at(file: FileDescriptorProto, indexes: tuple[int, ...]) -> str:
    names, types = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(types):
            raise Undecodable(f"the schema has no message type at {indexes}")
        names.append(types[index].name)
        types = types[index].nested_type
    return ".".join(names)


def compiled(schemas: Mapping[str, Schema], main: str) -> FileDescriptorSet:
    """Compile a file with all that it imports.

    Raises Undecodable; OSError or SubprocessError when it could not be tried.

    In a child process: protoc may crash, and prints where it likes.
    """
    with TemporaryDirectory(prefix="drainer-") as folder:
        root, described = Path(folder, "files").resolve(), FileDescriptorSet()
        for name, schema in schemas.items():
            if (file := _described(schema.text)) is not None:
                file.name = name
                described.file.append(file)
                continue
            try:
                path = root.joinpath(name).resolve()
                path.relative_to(root)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(schema.text, encoding="utf-8")
            except (ValueError, OSError) as error:
                if isinstance(error, OSError) and error.errno not in _OF_NAMES:
                    raise
                raise Undecodable(f"it refers to {name!r}, which is not a file's name") from error
        root.mkdir(exist_ok=True)
        given = Path(folder, "given.pb")
        given.write_bytes(described.SerializeToString())
        command = [
            *python_module("grpc_tools.protoc", f"-I{root}", *_INCLUDED),
            *([f"--descriptor_set_in={given}"] if described.file else []),
            *("--include_imports", "--descriptor_set_out=/dev/stdout", main),
        ]
        ended = subprocess.run(
            bound_to_parent(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMPILE_S,
            check=False,
        )
        # Other signals are of a schema that it fails at.
        if -ended.returncode in (SIGKILL, SIGTERM):
            raise subprocess.SubprocessError(f"protoc was ended by signal {-ended.returncode}")
        if ended.returncode != 0:
            raise Undecodable(
                ended.stderr.decode(errors="replace").strip()[-500:] or "protoc fails"
            )
        return FileDescriptorSet.FromString(ended.stdout)


def _described(text: str) -> FileDescriptorProto | None:
    """The descriptor that Confluent's Python serialiser registers in place of text."""
    try:
        return FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (NoBase64, ValueError):
        return None


def _as_dict(
    descriptor: Descriptor, known: dict[str, Callable[[Any], Any]]
) -> Callable[[Any], dict[str, Any]]:
    fields: list[tuple[str, bool, Callable[[Any], Any]]] = []

    def as_dict(message: Any) -> dict[str, Any]:
        return {
            name: convert(getattr(message, name))
            for name, always, convert in fields
            if always or message.HasField(name)
        }

    known[descriptor.full_name] = as_dict  # before its fields: a type may contain itself
    for field in descriptor.fields:
        fields.append((field.name, not field.has_presence, _converter(field, known)))
    return as_dict


def _converter(
    field: FieldDescriptor, known: dict[str, Callable[[Any], Any]]
) -> Callable[[Any], Any]:
    kind = field.message_type
    convert: Callable[[Any], Any] | None = None
    if kind is not None and kind.GetOptions().map_entry:
        of_value = _converter(kind.fields_by_name["value"], known)
        return lambda found: {key: of_value(found[key]) for key in found}
    if kind is not None:
        convert = known.get(kind.full_name) or _as_dict(kind, known)
    elif field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        convert = lambda number: names.get(number, number)  # noqa: E731
    if not field.is_repeated:
        return convert or _itself
    return list if convert is None else lambda found: [convert(each) for each in found]


def _itself(value: Any) -> Any:
    return value

"""Payloads whose schema is in a registry: Avro, Protobuf and JSON Schema, as Confluent's clients
write them."""

from drainer.loading.extensions import ensure_installed

ensure_installed("registry", "a schema registry")

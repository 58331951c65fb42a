"""Payloads with a schema in a registry: Avro, Protobuf, JSON Schema, in Confluent's format."""

from drainer.extensions import ensure_installed

ensure_installed("registry", "a schema registry")

"""A real Kafka of one broker on this machine, for demos, scenarios and tests.

It uses no Kafka client. Only its command prints: the functions report progress to a callback.
"""

from drainer.sandbox.sandbox import SandboxState, down, up

__all__ = ["SandboxState", "down", "up"]

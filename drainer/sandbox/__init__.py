"""A real Kafka on this machine, for demos, scenarios and tests.

``up`` and ``down`` are a person's sandbox; ``Broker`` is one broker and ``Brokers`` several,
for tests. Nothing here speaks to Kafka as a client does, and nothing prints: progress goes to a
callback.
"""

from drainer.sandbox.broker import Broker
from drainer.sandbox.brokers import Brokers
from drainer.sandbox.ports import BrokerPorts
from drainer.sandbox.sandbox import SandboxState, down, up

__all__ = ["Broker", "BrokerPorts", "Brokers", "SandboxState", "down", "up"]

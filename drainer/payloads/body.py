"""The bytes of a message while they are read, and the limit of the values that they become."""

from __future__ import annotations

from drainer.split.decoding import Undecodable

# A few bytes can become very many values. So the values of a body may take at most FREE_BYTES of
# memory, and PER_BYTE more for each of its bytes.
FREE_BYTES = 4 * 1024 * 1024
PER_BYTE = 100
# Estimates of the bytes that CPython takes for a list or object, for a value in it, and for a name.
CONTAINER_BYTES, VALUE_BYTES, NAME_BYTES = 80, 48, 64
LONGEST_NUMBER = 10  # A number of 64 bits takes at most this many bytes.


class Body:
    """The bytes of a body, the position in them, and the memory that is left for values."""

    __slots__ = ("at", "data", "left", "size")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.size = len(data)
        self.left = FREE_BYTES + PER_BYTE * self.size

    @property
    def made_bytes(self) -> int:
        """The memory in bytes that the values take, including their texts."""
        return FREE_BYTES + (PER_BYTE + 1) * self.size - self.left

    def spend(self, size: int) -> None:
        """Count memory before a value is made. Raises Undecodable if it is too much."""
        self.left -= size
        if self.left < 0:
            most = FREE_BYTES + PER_BYTE * self.size
            raise Undecodable(f"{self.size:,} bytes become values of more than {most:,} bytes")

    def take(self, size: int) -> bytes:
        """Read ``size`` bytes. Raises IndexError when there are fewer."""
        at = self.at
        self.at = end = at + size
        if size < 0 or end > self.size:
            raise IndexError
        return self.data[at:end]

    def number(self) -> int:
        """Read a number of variable length. Raises IndexError if it does not end."""
        value = shift = 0
        for byte in self.data[self.at : self.at + LONGEST_NUMBER]:
            value += (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.at += shift // 7
                return value
        raise IndexError

    def signed(self) -> int:
        """Read a zigzag number of variable length. Raises IndexError if it does not end."""
        byte = self.data[self.at]
        if byte < 0x80:
            self.at += 1
            return byte >> 1 ^ -(byte & 1)
        value = self.number()
        return value >> 1 ^ -(value & 1)

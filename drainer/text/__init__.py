"""Text for people and for machines: made safe, masked, and without secrets."""

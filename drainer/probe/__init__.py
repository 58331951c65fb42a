"""Probes: what a drain would need, looked at without a change. The core does not import them."""

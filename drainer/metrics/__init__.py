"""Metrics of a running drain for Prometheus. Only this package imports prometheus_client."""

"""A running drain for Prometheus and Grafana. Only this package imports prometheus_client."""

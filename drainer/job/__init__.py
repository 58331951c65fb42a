"""The command job: it prints the manifests of a Kubernetes Job that drains. An extension."""

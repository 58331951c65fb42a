"""The extension with the command job: it prints the manifests of a Kubernetes Job that drains."""

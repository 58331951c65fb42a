"""The drain in virtual time, on a made-up disk and a made-up cluster, killed at any step."""

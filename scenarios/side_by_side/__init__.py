"""Measures the speed of every order on several workloads, on one broker, in one run."""

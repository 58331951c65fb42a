"""Tests of the pure core: no broker, no clock, no sleep."""

"""Promises of other projects, checked on drainer: one file for each source, which it names."""

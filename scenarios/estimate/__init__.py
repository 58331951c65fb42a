"""Errors of estimates: how near one is to the drain that follows it."""

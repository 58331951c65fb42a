"""Tries, against the installed command, cases in which trust was once broken."""

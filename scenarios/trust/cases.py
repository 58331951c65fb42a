"""All cases, in the order of their numbers. Importing a module adds its cases."""

from __future__ import annotations

import importlib
import pkgutil

import scenarios.trust
from scenarios.trust.case import CASES, Case


def all_cases() -> list[Case]:
    """Return the cases of every module named ``case_…`` in this folder."""
    for module in pkgutil.iter_modules(scenarios.trust.__path__):
        if module.name.startswith("case_"):
            importlib.import_module(f"scenarios.trust.{module.name}")
    return sorted(CASES, key=lambda each: each.id)

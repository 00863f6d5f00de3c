"""Checks a plan against every rule, without the solver."""

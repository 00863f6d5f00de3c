"""Scheduling policies that a replay compares: one module each."""

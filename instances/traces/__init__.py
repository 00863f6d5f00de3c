"""Readers of traces: what was submitted to a cluster, and how long it ran."""

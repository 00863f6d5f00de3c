"""Trencadis: exact, proven and explained placement for shared GPU clusters."""

__version__ = "0.1.0"

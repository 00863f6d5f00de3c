"""Replays of public traces by all policies, compared window by window."""

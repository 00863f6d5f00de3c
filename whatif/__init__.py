"""Scenarios, replay in time, policies side by side, capacity search, measures."""

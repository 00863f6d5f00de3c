"""Moves running jobs where that pays: in order, within a budget of their own."""

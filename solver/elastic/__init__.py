"""Elastic jobs: what they get beyond their minimum, and what they give up again."""

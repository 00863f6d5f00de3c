"""Commands that `cli.py` registers, where one module holds several that belong together."""

"""Groups of commands: a module each, which `cli.py` registers in a line."""

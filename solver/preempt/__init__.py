"""Running work that makes room: who may be asked, what it costs, and whether it had to be."""

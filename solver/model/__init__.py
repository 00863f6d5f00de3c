"""The counting model: one module per family of rows."""

"""Ways to fill one bin."""

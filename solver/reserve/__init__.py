"""Reservations: when and where the heaviest waiting jobs start, and who may run until then."""

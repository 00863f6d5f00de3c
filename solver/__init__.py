"""One round: snapshot -> plan."""

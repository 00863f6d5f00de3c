"""The cheapest mix of nodes that meets a target, what it costs to rent, and how that is known."""

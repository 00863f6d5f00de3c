"""Other schedulers: what they say of a cluster, as a snapshot."""

"""Living with a native scheduler: modes, scope, preconditions, watchdog, audit. Knows no scheduler.

What a scheduler must offer is `cluster.Cluster`; adapters implement it.
"""

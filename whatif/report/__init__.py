"""A report as one page of HTML: plans with a map of the cluster, replays with curves and costs."""

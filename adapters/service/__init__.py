"""The HTTP service: solving on request, and answers to kube-scheduler and Volcano from a plan."""

"""Example snapshots, generators and readers of public traces."""

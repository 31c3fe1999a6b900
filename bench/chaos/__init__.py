"""Nodes of a cluster and brokers at which everything goes wrong, and what must hold then."""

"""Peers: what other libraries offer for the same result."""

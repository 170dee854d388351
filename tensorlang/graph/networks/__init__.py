"""Networks, their weights, and their invocations."""

"""The search: spaces, samplers, cost models corrected by measurements."""

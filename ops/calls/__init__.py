"""Calls of operators: binding arguments, caches of launches, updates in place."""

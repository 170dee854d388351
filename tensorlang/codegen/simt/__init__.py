"""Lowering to launches of threads (SIMT): `lower.lower(function, target)`."""

"""Limits of the machine, probed and published, and the fractions reached."""

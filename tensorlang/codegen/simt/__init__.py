"""From scheduled functions to launches of threads: `lower.lower(function, target)`."""

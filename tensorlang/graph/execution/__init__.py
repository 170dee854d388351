"""Programs bound to memory and run."""

"""Programs as text, parsed and printed."""

"""Mathematics on arrays, element by element and folded."""

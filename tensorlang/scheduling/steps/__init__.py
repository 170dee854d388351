"""The primitives: each a function from IR to IR that proves its legality."""

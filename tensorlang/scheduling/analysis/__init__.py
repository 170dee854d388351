"""What primitives ask about a function: places, regions, dependences, guards."""

"""Programs rewritten: fusion, state threading, checks of keys."""

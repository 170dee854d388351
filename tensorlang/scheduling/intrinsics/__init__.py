"""Instructions that `tensorize` introduces, as loop nests and as code."""

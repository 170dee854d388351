"""Programs that compute gradients of programs."""

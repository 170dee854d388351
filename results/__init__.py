"""What was measured: shipped records (the best configurations) and benchmark tables."""

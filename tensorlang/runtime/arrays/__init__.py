"""Arrays of any library as arguments and results, without copies."""

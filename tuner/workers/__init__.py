"""Worker processes: candidates are built, checked and timed apart from the tuner."""

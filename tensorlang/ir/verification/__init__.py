"""Static rules that every well-formed function keeps."""

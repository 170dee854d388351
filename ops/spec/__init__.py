"""What an operator is: its signature, declarations and documentation as data."""

"""Experiments: engine configurations compared on the same sessions, and what may be said of the difference."""

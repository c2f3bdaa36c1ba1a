"""From failures to their causes. Pure functions on rows of the store; no torch."""

"""Running a model: what it returns, what the truth is, and whether it really ran where it should."""

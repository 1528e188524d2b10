"""Own what turns keys and inclusions into foreign keys: candidates, names, features, choices, ranking."""

"""Own the sketches of a column, the same verbs on each: update, remove, merge, estimate, to_bytes, from_bytes."""

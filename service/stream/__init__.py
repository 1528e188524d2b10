"""Change feeds: where records come from, and the pure decoding of their envelopes."""

"""Mutation testing of the core and of the decoding of envelopes, whose command is `make mutants`."""

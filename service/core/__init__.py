"""Pure functions and values: no I/O, no clock, no logging, no global random state."""

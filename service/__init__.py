"""subsetd keeps the inclusion dependencies of changing data current."""

__version__ = "0.1.0"

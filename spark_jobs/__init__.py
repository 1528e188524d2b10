"""Jobs for Spark: they stand above the service, and nothing imports them."""

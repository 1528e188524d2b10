"""A local server of S3 buckets, which asks for credentials, for the proof of corpora in buckets (`make endurance`)."""

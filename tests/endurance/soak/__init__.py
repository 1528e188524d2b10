"""The soak: hours of load on all feeds while every part is killed; see docs/soak.md."""

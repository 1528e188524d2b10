"""What the service does, over the Protocols of ports.py."""

"""Own the ways on which alerts leave the service: webhooks, mail, topics."""

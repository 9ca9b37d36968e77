"""The agent: its settings, who is who, the scheduler, and the service on real programs."""

"""Handlers of requests, on stacks of servers with the frameworks that we know."""

"""Profiles as tables of text."""

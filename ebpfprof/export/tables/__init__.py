"""Profiles as tables for people."""

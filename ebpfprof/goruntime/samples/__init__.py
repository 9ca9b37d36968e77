"""Goroutines over time: samples at random moments, how long each state lasted, which are idle."""

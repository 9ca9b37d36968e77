"""Settings: what they take, their defaults and help, and the TOML files that hold them."""

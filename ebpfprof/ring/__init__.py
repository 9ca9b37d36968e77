"""The local ring: what was recorded of services, in files by time, bounded in bytes and age."""

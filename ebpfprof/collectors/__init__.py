"""One module per profile: which probes it needs, and what the kernel's maps say."""

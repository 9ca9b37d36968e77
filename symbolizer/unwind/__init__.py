"""Where a frame's caller is: rules from Go's tables and from .eh_frame."""

"""What goroutines wait for, who keeps them waiting, and which of them do not move."""

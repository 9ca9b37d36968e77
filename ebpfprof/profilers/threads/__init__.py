"""The threads and threadcreate profiles: what each thread does, and which goroutine has it."""

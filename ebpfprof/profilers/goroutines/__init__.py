"""The goroutine, threads, threadcreate and wall profiles, which are read from memory."""

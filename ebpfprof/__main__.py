"""The command `ebpfprof`."""

from ebpfprof.cli import main

if __name__ == "__main__":
    main()

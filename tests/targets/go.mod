// All programs here but shop, which docs/tutorial.md has users copy. The language is that of the
// oldest Go that is tested; tests/toolchains.py builds with each version as it builds its own.
module ebpfprof.test

go 1.19

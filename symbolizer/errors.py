"""What can be wrong with a file: one tree of exceptions, each message a sentence with a way out.

SymbolizerError
├── ElfError              not an ELF file, truncated, corrupt or hostile
│   └── UnsupportedElf    a sound ELF file, but of another architecture or word size
├── NotGoError            no trace of Go in it
├── UnsupportedGoVersion  a Go version whose layout is not known
├── GoTableError          pclntab, moduledata or build info that contradicts itself
└── TooMuchToRead         the files of a process take more memory or time than they are allowed
"""


class SymbolizerError(Exception):
    """Anything the symbolizer gives up on."""


class ElfError(SymbolizerError):
    """The file is not an ELF file, or its headers contradict its size or each other."""


class UnsupportedElf(ElfError):  # noqa: N818 (reads better where it is raised)
    """An ELF file that is sound but not 64-bit little-endian x86-64."""


class NotGoError(SymbolizerError):
    """The file holds no Go program."""


class UnsupportedGoVersion(SymbolizerError):  # noqa: N818 (reads better where it is raised)
    """A Go program of a version whose runtime layout is not known."""


class GoTableError(SymbolizerError):
    """pclntab, moduledata or build info points outside the file or contradicts itself."""


class TooMuchToRead(SymbolizerError):  # noqa: N818 (reads better where it is raised)
    """Reading the files of a process takes more memory or CPU time than any real one's."""

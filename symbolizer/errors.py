"""What can be wrong with a file: one tree of exceptions, each message a sentence with a way out.

SymbolizerError
├── ElfError              not an ELF file, truncated, corrupt or hostile
│   └── UnsupportedElf    a sound ELF file, but of another architecture or word size
├── NotGoError            not a Go program
│   └── PackedProgram     a program that unpacks itself into memory
├── UnsupportedGoVersion  a Go version whose runtime layout is unknown
│   ├── ObfuscatedProgram a program that hides its Go version or its runtime's names
│   └── OtherCompiler     a Go program with another runtime than Go's own
├── GoTableError          pclntab, moduledata or build info that contradicts itself
└── TooMuchToRead         reading a process's files takes more memory or CPU time than is allowed
"""


class SymbolizerError(Exception):
    """The symbolizer cannot read a file, or a part of it."""


class ElfError(SymbolizerError):
    """Not an ELF file, or its headers contradict its size or each other."""


class UnsupportedElf(ElfError):  # noqa: N818 (reads better where it is raised)
    """An ELF file that is sound but not 64-bit little-endian x86-64."""


class NotGoError(SymbolizerError):
    """The file holds no Go program."""


class PackedProgram(NotGoError):  # noqa: N818 (reads better where it is raised)
    """An executable that a packer compressed: it may hold a Go program, which only memory has."""

    def __init__(self) -> None:
        super().__init__("it is packed by UPX, so its code is not in the file")


class UnsupportedGoVersion(SymbolizerError):  # noqa: N818 (reads better where it is raised)
    """A Go program of a version whose runtime layout is unknown.

    With `can_be_tried`, it can be read as the nearest known version. Otherwise `remedy` says how to
    build a program that can be read.
    """

    def __init__(
        self,
        message: str,
        *,
        can_be_tried: bool = False,
        remedy: str = "build it with a known version",
    ) -> None:
        super().__init__(message)
        self.can_be_tried = can_be_tried
        self.remedy = remedy


class ObfuscatedProgram(UnsupportedGoVersion):
    """A Go program that an obfuscator changed so that its runtime can't be recognised."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the program is obfuscated, as garble does: {what}",
            remedy="build it without the obfuscator",
        )


class OtherCompiler(UnsupportedGoVersion):
    """A program of another Go compiler, which has another runtime: gccgo or TinyGo."""

    def __init__(self, compiler: str) -> None:
        super().__init__(
            f"the program was built with {compiler}, whose runtime is not Go's own",
            remedy="build it with Go's own compiler",
        )


class GoTableError(SymbolizerError):
    """pclntab, moduledata or build info points outside the file or contradicts itself."""


class TooMuchToRead(SymbolizerError):  # noqa: N818 (reads better where it is raised)
    """Reading the files of a process takes more memory or CPU time than any real one's."""

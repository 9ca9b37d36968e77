"""Generate symbolizer/data/goruntime.json from real Go toolchains.

    python -m tests.tools.generate_goruntime GOROOT...

Each toolchain builds tests/targets/layout; struct layouts come from its DWARF, what marks its
pclntab from the program itself, all else from the runtime's source. Versions of the file for which
no GOROOT is given are kept as they are. Of a patch release that is older than that of the file,
only what differed then is added: that is of all releases up to it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

from symbolizer import GoVersion
from tests.toolchains import Toolchain
from tests.tools.goruntime_fields import FIELDS, NAMES_IN_SYNC, OLD_NAMES, SEMA_OF_GROUP

ROOT: Final = Path(__file__).resolve().parents[2]
OUTPUT: Final = ROOT / "symbolizer" / "data" / "goruntime.json"
LAYOUT_TARGET: Final = ROOT / "tests" / "targets" / "layout"

# Where the constants are, newest place first, and how they are written there.
CONSTANT_FILES: Final = ("src/internal/abi/symtab.go", "src/runtime/symtab.go")
WAIT_REASON_FILE: Final = "src/runtime/runtime2.go"
WAIT_REASON: Final = re.compile(r"^\twaitReason(\w+)", re.MULTILINE)
WAIT_REASON_TEXT: Final = re.compile(r'^\twaitReason(\w+): +"([^"]*)",', re.MULTILINE)
PROC_FILE: Final = "src/runtime/proc.go"
STOP_REASON: Final = re.compile(r"^\t(stw\w+)", re.MULTILINE)
STOP_REASON_TEXT: Final = re.compile(r'^\t(stw\w+): +"([^"]*)",', re.MULTILINE)
FUNC_ID: Final = re.compile(r"^\t(?:FuncID_?|funcID_)(\w+)", re.MULTILINE)
# Where Go says how it records the stacks of its block and mutex profiles, and what labels are.
PROFILE_FILE: Final = "src/runtime/mprof.go"
DEBUG_FILE: Final = "src/runtime/runtime1.go"
LABEL_FILE: Final = "src/runtime/pprof/label.go"
# Go 1.19 to 1.22: an array. Later: the default of a variable that GODEBUG sets.
STACK_ARRAY: Final = re.compile(r"^\tmaxStack = (\d+)$", re.MULTILINE)
STACK_VARIABLE: Final = re.compile(r"&debug\.profstackdepth, def: (\d+)\}")
BY_FRAME_POINTERS: Final = "= fpTracebackPartialExpand("
RECORDS_RUNTIME_LOCKS: Final = "func (prof *mLockProfile) captureStack("
SENTINEL_IN_STACK: Final = "prof.stack[0] = logicalStackSentinel"
LABELS: Final = re.compile(r"^type labelMap (map\[string\]string|struct \{)$", re.MULTILINE)
# Where Go says how it writes tracebacks, and the text of goroutine profiles.
TRACEBACK_FILE: Final = "src/runtime/traceback.go"
PPROF_FILE: Final = "src/runtime/pprof/pprof.go"
MPROF_FILE: Final = "src/runtime/mprof.go"
MALLOC_FILE: Final = "src/runtime/malloc.go"
SKIPPED: Final = re.compile(r"nstk := callers\((\d), ")
PRINT_FILE: Final = "src/runtime/print.go"
MOST_FRAMES: Final = (
    re.compile(r"^const _TracebackMaxFrames = (\d+)$", re.MULTILINE),
    re.compile(r"^\ttracebackInnerFrames = (\d+)$", re.MULTILINE),
    re.compile(r"^\ttracebackOuterFrames = (\d+)$", re.MULTILINE),
)
BUBBLE: Final = re.compile(r'print\(", (synctest \w+) ", ')
LABELS_DEFAULT: Final = re.compile(r"&debug\.tracebacklabels, def: (\d)\}")
HIDDEN_PREFIX: Final = re.compile(r'strings\.HasPrefix\(name, "([^"]+)"\)')
# How the runtime makes epoll's data of the address of a pollDesc: a pointer with a tag.
POLL_FILE: Final = "src/runtime/netpoll_epoll.go"
TAG_FILES: Final = ("src/runtime/tagptr_64bit.go", "src/runtime/tagptr.go")
PLAIN_POLL_DATA: Final = re.compile(r"\*\(\*\*pollDesc\)\(unsafe\.Pointer\(&ev\.[dD]ata\)\) = pd")
ADDRESS_BITS: Final = re.compile(r"^\t(?:defaultAddrBits|addrBits) = (\d+)(?: \+ (\d+))?$", re.M)
ALIGNMENT_BITS: Final = re.compile(r"^const tagAlignBits = (\d+)$", re.M)
OLD_ALIGNMENT: Final = re.compile(r"^\ttagBits = 64 - addrBits \+ (\d+)$", re.M)
# The sizes of small objects, by size class.
SIZE_CLASS_FILES: Final = (
    "src/internal/runtime/gc/sizeclasses.go",
    "src/runtime/sizeclasses.go",
)
# What the runtime keeps beside objects: finalizers, samples of the memory profile.
HEAP_FILE: Final = "src/runtime/mheap.go"
SPECIAL_KIND: Final = re.compile(r"^\t_KindSpecial(\w+) += (\d+)$", re.MULTILINE)
HISTOGRAM_FILE: Final = "src/runtime/histogram.go"
LEAST_BITS: Final = re.compile(r"^\ttimeHistMinBucketBits += (\d+)$", re.MULTILINE)
SUB_BUCKET_BITS: Final = re.compile(r"^\ttimeHistSubBucketBits += (\d+)$", re.MULTILINE)
PACER_FILE: Final = "src/runtime/mgcpacer.go"
HEADROOM: Final = re.compile(r"^\tmemoryLimitHeapGoalHeadroomPercent = (\d+)$", re.MULTILINE)
SIZE_CLASSES: Final = re.compile(r"^var (?:SizeClassToSize|class_to_size) = .*\{(.*)\}$", re.M)
INLINE_CONSTANTS: Final = {
    "pcdata_inl_tree_index": re.compile(r"^\s*_?PCDATA_InlTreeIndex\s*=\s*(\d+)", re.MULTILINE),
    "funcdata_inl_tree": re.compile(r"^\s*_?FUNCDATA_InlTree\s*=\s*(\d+)", re.MULTILINE),
}

# The experiments of a version, and where the runtime asks for them.
FLAGS_FILE: Final = "src/internal/goexperiment/flags.go"
FLAG: Final = re.compile(r"^\t([A-Z]\w+) +bool$", re.MULTILINE)
RUNTIME_FOLDERS: Final = ("src/runtime", "src/internal/runtime")
USED_FLAG: Final = re.compile(r"goexperiment\.(\w+)")
WITHOUT_REGISTERS: Final = "regabi"
# Fields that a struct of such a build has, and its runtime does not use: objects have no type then.
UNUSED_FIELDS: Final = {"noallocheaders": {"mspan": ("largeType",)}}


def describe(goroot: Path) -> tuple[str, dict[str, Any]]:
    """Return a toolchain's minor version, "1.27", and its entry in the file."""
    version = (goroot / "VERSION").read_text().split()[0].removeprefix("go")
    toolchain = Toolchain(version, goroot)
    text = constants_source(goroot)
    entry: dict[str, Any] = {"toolchain": f"go{version}"}
    for name, pattern in INLINE_CONSTANTS.items():
        match = pattern.search(text)
        assert match, f"{goroot}: no {name}"
        entry[name] = int(match[1])
    entry["func_ids"] = func_ids(text)
    reasons = (goroot / WAIT_REASON_FILE).read_text()
    entry["wait_reasons"] = wait_reasons(reasons)
    entry["wait_reason_texts"] = wait_reason_texts(reasons)
    entry["stop_reasons"] = stop_reasons((goroot / PROC_FILE).read_text())
    entry["profile_stacks"] = profile_stacks(goroot)
    entry["tracebacks"] = tracebacks(goroot)
    entry["labels_in_slice"] = labels_in_slice((goroot / LABEL_FILE).read_text())
    entry["poll_data_shifts"] = poll_data_shifts(goroot)
    entry["size_classes"] = size_classes(goroot)
    entry["special_kinds"] = special_kinds((goroot / HEAP_FILE).read_text())
    headroom = HEADROOM.search((goroot / PACER_FILE).read_text())
    entry["memory_limit_headroom_percent"] = int(headroom[1]) if headroom else 0
    entry["time_histogram_bits"] = time_histogram_bits((goroot / HISTOGRAM_FILE).read_text())
    program = toolchain.build(LAYOUT_TARGET)
    entry["pclntab_magic"] = pclntab_magic(program)
    entry["structs"] = struct_layouts(program)
    return toolchain.minor, entry


def experiments(toolchain: Toolchain, usual: dict[str, Any]) -> dict[str, Any]:
    """For each experiment that moves fields, those structs that are not as `usual`.

    That takes minutes: each experiment has its own build of the runtime.
    """
    found = {
        name: other_structs(toolchain, name, usual) for name in experiments_of_runtime(toolchain)
    }
    return {name: rows for name, rows in found.items() if rows}


def experiments_of_runtime(toolchain: Toolchain) -> list[str]:
    """The values of GOEXPERIMENT that change the runtime, each other than what is usual.

    Programs that pass arguments on the stack are not read at all.
    """
    flags = FLAG.findall((toolchain.goroot / FLAGS_FILE).read_text())
    used = {
        match[1].lower().removesuffix("int")
        for folder in RUNTIME_FOLDERS
        for path in (toolchain.goroot / folder).rglob("*.go")
        for match in USED_FLAG.finditer(path.read_text())
    }
    wanted = [flag.lower() for flag in flags if flag.lower() in used]
    usual = toolchain.go("list", "-f", "{{context.ToolTags}}", "unsafe").strip(" []\n").split()
    return [
        f"no{flag}" if f"goexperiment.{flag}" in usual else flag
        for flag in wanted
        if not flag.startswith(WITHOUT_REGISTERS)
    ]


def of_patch(stored: dict[str, Any], patch: int) -> dict[str, Any]:
    """The stored entry of a minor version as it is of a patch release, without other releases."""
    earlier = [key for key in stored.get("earlier", {}) if patch <= int(key)]
    other = stored["earlier"][min(earlier, key=int)] if earlier else {}
    entry = stored | other | {"structs": stored["structs"] | other.get("structs", {})}
    entry.pop("earlier", None)
    return entry


def differing(entry: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """What differs in an entry from the known one of the same minor version."""
    structs = known["structs"]
    rows = {name: row for name, row in entry["structs"].items() if row != structs[name]}
    other = {
        name: value
        for name, value in entry.items()
        if name not in ("toolchain", "structs") and value != known[name]
    }
    return other | {"structs": rows} if rows else other


def patch_of(entry: dict[str, Any]) -> int:
    """The number of the patch release that an entry is of: 13 of "go1.17.13"."""
    return GoVersion.parse(entry["toolchain"]).patch


def constants_source(goroot: Path) -> str:
    """Return the source file that declares the function ids."""
    for name in CONSTANT_FILES:
        path = goroot / name
        if path.exists() and FUNC_ID.search(text := path.read_text()):
            return text
    raise ValueError(f"{goroot}: no file declares the function ids")


def func_ids(source: str) -> dict[str, int]:
    """Return the function ids of the constant block whose first line assigns iota."""
    start = re.search(r"^const \(\n(?:\t*//.*\n|\n)*\t(?:FuncID|funcID_).*= iota", source, re.M)
    assert start, "no constant block of function ids"
    block = source[start.start() : source.index("\n)", start.start())]
    names = [match[1][0].lower() + match[1][1:] for match in FUNC_ID.finditer(block)]
    return {name: number for number, name in enumerate(names)}


def wait_reasons(source: str) -> dict[str, int]:
    """Return the wait reasons of the constant block that begins with waitReasonZero."""
    start = source.index("\twaitReasonZero ")
    names = WAIT_REASON.findall(source[start : source.index("\n)", start)])
    return {name: number for number, name in enumerate(names)}


def wait_reason_texts(source: str) -> dict[str, str]:
    """Return the words of tracebacks for each wait reason (waitReasonStrings)."""
    start = source.index("var waitReasonStrings")
    return dict(WAIT_REASON_TEXT.findall(source[start : source.index("\n}", start)]))


def stop_reasons(source: str) -> list[str]:
    """Return why the world may be stopped, by runtime.stwReason; none before Go 1.21."""
    start = source.find("const (\n\tstwUnknown ")
    if start < 0:
        return []
    names = STOP_REASON.findall(source[start : source.index("\n)", start)])
    texts = dict(STOP_REASON_TEXT.findall(source))
    return [texts[name] for name in names]


def profile_stacks(goroot: Path) -> dict[str, Any]:
    """Return how the stacks of Go's block and mutex profiles are recorded, as ProfileStacks has it.

    A stack of the runtime's own locks is recorded in a buffer of the same size, the first word of
    which may be taken by logicalStackSentinel.
    """
    source = (goroot / PROFILE_FILE).read_text()
    match = STACK_ARRAY.search(source) or STACK_VARIABLE.search((goroot / DEBUG_FILE).read_text())
    assert match, f"{goroot}: no depth of recorded stacks"
    depth = int(match[1])
    records = RECORDS_RUNTIME_LOCKS in source
    return {
        "max_depth": depth,
        "unwinds_by_tables": BY_FRAME_POINTERS not in source,
        "runtime_lock_depth": depth - (SENTINEL_IN_STACK in source) if records else 0,
    }


def tracebacks(goroot: Path) -> dict[str, Any]:
    """Return how tracebacks are written, as TracebackRules has it."""
    source = (goroot / TRACEBACK_FILE).read_text()
    limits = source + (goroot / WAIT_REASON_FILE).read_text()
    header = function(source, "goroutineheader")
    shown = function(source, "showfuncinfo")
    most = [int(match[1]) if (match := each.search(limits)) else 0 for each in MOST_FRAMES]
    bubble = BUBBLE.search(header)
    default = LABELS_DEFAULT.search((goroot / DEBUG_FILE).read_text())
    record = function((goroot / PPROF_FILE).read_text(), "printStackRecord")
    pieces = function(source, "funcNamePiecesForPrint")
    idle = re.findall(r"^\twaitReason(\w+): +true,", idle_in_synctest(goroot), re.MULTILINE)
    return {
        "most_frames": most[0],
        "inner_frames": most[1],
        "outer_frames": most[2],
        "preempted_is_trap": "unwindTrap" in source,
        "liveness_of_outermost": "printArgs(f, argp, tracepc)" in source,
        "shows_finalizers": "runFinalizers" in shown,
        "shows_exported_methods": "rcvr" in source,
        "shortened_type_arguments": 0 if not pieces else 2 if "interior" in pieces else 1,
        "shows_leaks": "(leaked)" in header,
        "durable_reasons": idle if "(durable)" in header else [],
        "durable_only_while_waiting": "gpstatus == _Gwaiting &&\n\t\tgp.waitreason" in header,
        "bubble": bubble[1] if bubble else "",
        "labels": labels_in_header(header),
        "labels_by_default": bool(default and int(default[1])),
        "quotes_bytes": "Distinguish errors" in (goroot / PRINT_FILE).read_text(),
        "skips_callers_of_mallocgc": skips_callers_of_mallocgc(goroot),
        "unequal_totals": "allocBytes++" in (goroot / PPROF_FILE).read_text(),
        "hidden_prefixes": HIDDEN_PREFIX.findall(record),
    }


def skips_callers_of_mallocgc(goroot: Path) -> bool:
    """Return whether mProf_Malloc leaves out the caller of mallocgc, too.

    It skips its own frame, that of profilealloc, and those of mallocgc, which since Go 1.24 is made
    of functions for each kind of object.
    """
    found = SKIPPED.search(function((goroot / MPROF_FILE).read_text(), "mProf_Malloc"))
    assert found
    kinds = function((goroot / MALLOC_FILE).read_text(), "mallocgcLarge")
    return int(found[1]) > (4 if kinds else 3)


def function(source: str, name: str) -> str:
    """Return the source of a function, "" if there is not one of that name."""
    match = re.search(rf"^func {name}\(.*?^\}}", source, re.MULTILINE | re.DOTALL)
    return match[0] if match else ""


def idle_in_synctest(goroot: Path) -> str:
    """Return the table of wait reasons that are durable in a synctest bubble, "" without one."""
    source = (goroot / WAIT_REASON_FILE).read_text()
    start = source.find("var isIdleInSynctest")
    return source[start : source.index("\n}", start)] if start >= 0 else ""


def labels_in_header(header: str) -> str:
    """Return where a traceback's header has labels: "", "inside" the brackets, or "behind"."""
    if "tracebacklabels" not in header:
        return ""
    return "inside" if '" labels:{"' in header else "behind"


def labels_in_slice(source: str) -> bool:
    """Return whether the labels of a goroutine are a slice; a map else."""
    match = LABELS.search(source)
    assert match, "no type of labels"
    return match[1].startswith("struct")


def poll_data_shifts(goroot: Path) -> list[int]:
    """Return by how many bits to shift epoll's data right and then left: that is the pollDesc."""
    if PLAIN_POLL_DATA.search((goroot / POLL_FILE).read_text()):
        return [0, 0]
    text = "".join((goroot / name).read_text() for name in TAG_FILES)
    bits = ADDRESS_BITS.search(text)
    alignment = ALIGNMENT_BITS.search(text) or OLD_ALIGNMENT.search(text)
    assert bits, f"{goroot}: no width of tagged pointers"
    assert alignment, f"{goroot}: no alignment of tagged pointers"
    left = int(alignment[1])
    return [64 - int(bits[1]) - int(bits[2] or 0) + left, left]


def size_classes(goroot: Path) -> list[int]:
    """Return the sizes of small objects (bytes), by size class; class 0 is that of large ones."""
    path = next(path for name in SIZE_CLASS_FILES if (path := goroot / name).exists())
    match = SIZE_CLASSES.search(path.read_text())
    assert match, f"{path}: no size classes"
    return [int(size) for size in match[1].split(",")]


def special_kinds(source: str) -> dict[str, int]:
    """Return the numbers of runtime.special.kind: {"Finalizer": 1}."""
    kinds = {name: int(number) for name, number in SPECIAL_KIND.findall(source)}
    assert "Finalizer" in kinds, "no kinds of specials"
    return kinds


def time_histogram_bits(source: str) -> list[int]:
    """Return the bits of a value (ns) from which buckets of a histogram double, and of parts.

    Without such a limit, as in Go 1.19, they double where the parts of a bucket are 1 ns wide.
    """
    parts, least = SUB_BUCKET_BITS.search(source), LEAST_BITS.search(source)
    assert parts, "no buckets of histograms"
    return [int(least[1]) if least else int(parts[1]) + 1, int(parts[1])]


def pclntab_magic(program: Path) -> str:
    """Return the number that a program's pclntab begins with, in hexadecimal."""
    with program.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gopclntab")
        assert section, f"{program}: no pclntab"
        return f"{int.from_bytes(section.data()[:4], 'little'):#x}"


def other_structs(toolchain: Toolchain, experiment: str, usual: dict[str, Any]) -> dict[str, Any]:
    """The layouts of those structs that are others in a program built with an experiment."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "layout"
        build = ("build", *toolchain.without_vcs, "-o", str(program), ".")
        toolchain.go(*build, cwd=LAYOUT_TARGET, env={"GOEXPERIMENT": experiment})
        found = struct_layouts(program)
    for struct, unused in UNUSED_FIELDS.get(experiment, {}).items():
        for field in unused:
            found[struct]["fields"].pop(field, None)
    return {name: row for name, row in found.items() if row != usual.get(name)}


def struct_layouts(program: Path) -> dict[str, Any]:
    """Return {struct: {"size": bytes, "fields": {name: offset in bytes}}} by a program's DWARF."""
    with program.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        dies = {
            name: die
            for unit in dwarf.iter_CUs()
            for die in unit.iter_DIEs()
            if die.tag == "DW_TAG_structure_type"
            and (name := name_of(die).removeprefix("runtime.")) in FIELDS
        }
        layouts = {}
        for struct, wanted in FIELDS.items():
            if struct not in dies:
                continue
            names = NAMES_IN_SYNC.get(struct, {})
            offsets = {names.get(name, name): at for name, at in flattened(dies[struct])}
            if struct == "sync.WaitGroup":
                offsets.setdefault("sema", offsets["state"] + SEMA_OF_GROUP)
            layouts[struct] = {
                "size": dies[struct].attributes["DW_AT_byte_size"].value,
                "fields": {name: offsets[name] for name in wanted if name in offsets},
            }
        return layouts


def flattened(struct: DIE) -> Iterator[tuple[str, int]]:
    """Yield the name and offset of each field, and of the fields of fields that are structs."""
    for member in struct.iter_children():
        if member.tag != "DW_TAG_member":
            continue
        name = OLD_NAMES.get(name_of(member), name_of(member))
        offset = member.attributes["DW_AT_data_member_location"].value
        yield name, offset
        kind = member.get_DIE_from_attribute("DW_AT_type")
        while kind.tag == "DW_TAG_typedef":
            kind = kind.get_DIE_from_attribute("DW_AT_type")
        if kind.tag == "DW_TAG_structure_type":
            for inner, more in flattened(kind):
                yield f"{name}.{inner}", offset + more


def name_of(die: DIE) -> str:
    """Return a DIE's name, "" if it has none."""
    return die.attributes["DW_AT_name"].value.decode() if "DW_AT_name" in die.attributes else ""


def render(entries: dict[str, Any]) -> str:
    """Return the file's text: versions in order, one struct or table a line."""
    lines = []
    for minor in sorted(entries, key=lambda text: int(text.split(".")[1])):
        entry = dict(entries[minor])
        structs = entry.pop("structs")
        head = [f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items()]
        rows = [f"      {json.dumps(name)}: {json.dumps(row)}" for name, row in structs.items()]
        body = ",\n".join([*head, '    "structs": {\n' + ",\n".join(rows) + "\n    }"])
        lines.append(f"  {json.dumps(minor)}: {{\n{body}\n  }}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(goroots: Sequence[str]) -> int:
    """Describe each GOROOT and write the file."""
    if not goroots:
        print(__doc__, file=sys.stderr)
        return 2
    entries = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    for goroot in map(Path, goroots):
        minor, entry = describe(goroot)
        toolchain = Toolchain(entry["toolchain"].removeprefix("go"), goroot)
        known = entries.get(minor)
        if known and patch_of(entry) < patch_of(known):
            if other := differing(entry, known):
                known.setdefault("earlier", {})[str(patch_of(entry))] = other
            continue
        entries[minor] = entry | {"experiments": experiments(toolchain, entry["structs"])}
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(render(entries))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

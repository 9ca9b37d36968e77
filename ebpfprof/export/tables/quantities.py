"""Values of a profile, and the names of their sample types, as cells of a table."""

from ebpfprof.console.text import printable, quantity

_MAX_TEXT = 24


def amount(value: float, unit: str, *, color: bool) -> str:
    """A value with its unit, printable, since files may have any unit. ASCII without `color`."""
    return printable(quantity(value, unit)[:_MAX_TEXT], ascii_only=not color)


def share(value: float, whole: float) -> str:
    """The part of the whole in percent; "" if there is no whole."""
    return f"{100 * value / whole:.1f}%" if whole else ""


def heading(type_name: str) -> str:
    """The name of a sample type as the heading of a column: "Inuse space", "CPU"."""
    if type_name == "cpu":
        return "CPU"
    words = printable(type_name[:_MAX_TEXT], ascii_only=True).replace("_", " ")
    return words[:1].upper() + words[1:]

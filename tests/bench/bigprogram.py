"""A Go program of some 100 MB: generated packages of functions with calls that get inlined."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.toolchains import Toolchain, cache_dir, locked

PACKAGES: Final = 120
FUNCTIONS_PER_PACKAGE: Final = 300

HELPERS: Final = """package {package}

import (
	"errors"
	"fmt"
)

type pair struct {{
	name  string
	value int
}}

var errOdd = errors.New("odd")

func clamp(value, low, high int) int {{
	if value < low {{
		return low
	}}
	if value > high {{
		return high
	}}
	return value
}}

func fold(value int) int {{ return clamp(value*31+7, -1000, 1000) }}

func (p *pair) add(value int) {{ p.value += fold(value) }}

func (p pair) odd() error {{
	if p.value&1 == 1 {{
		return fmt.Errorf("%s: %w", p.name, errOdd)
	}}
	return nil
}}
"""

FUNCTION: Final = """
func F{number}(values []int, names map[string]int) (string, error) {{
	pairs := make([]pair, 0, len(values))
	for i, value := range values {{
		p := pair{{name: fmt.Sprint("f{number}.", i), value: fold(value + {number})}}
		p.add(i)
		if err := p.odd(); err != nil && i > {limit} {{
			return "", err
		}}
		pairs = append(pairs, p)
	}}
	var text strings.Builder
	for _, p := range pairs {{
		names[p.name] += clamp(p.value, {number}, {limit}+100)
		text.WriteString(strings.ToUpper(p.name))
		text.WriteByte(byte('a' + fold(p.value)%26))
	}}
	defer func() {{ names["f{number}"] = fold(len(pairs)) }}()
	switch total := fold(names["f{number}"]); {{
	case total > {limit}:
		return strings.TrimSpace(text.String()), nil
	case total < -{limit}:
		return strings.Repeat(text.String(), clamp(total, 1, 3)), fmt.Errorf("f{number}: %d", total)
	}}
	return text.String(), nil
}}
"""


def write_sources(folder: Path) -> None:
    """Write the module to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text("module ebpfprof.test/big\n\ngo 1.19\n")
    names = [f"p{number:03d}" for number in range(PACKAGES)]
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "helpers.go").write_text(HELPERS.format(package=name))
        for part in range(0, FUNCTIONS_PER_PACKAGE, 100):
            body = [f'package {name}\n\nimport (\n\t"fmt"\n\t"strings"\n)\n']
            body += (FUNCTION.format(number=n, limit=n % 97) for n in range(part, part + 100))
            (folder / name / f"part{part:03d}.go").write_text("".join(body))
        numbers = ", ".join(f"F{number}" for number in range(FUNCTIONS_PER_PACKAGE))
        (folder / name / "all.go").write_text(
            f"package {name}\n\nvar All = []func([]int, map[string]int) (string, error)"
            f"{{{numbers}}}\n"
        )
    imports = "".join(f'\t"ebpfprof.test/big/{name}"\n' for name in names)
    lists = ", ".join(f"{name}.All" for name in names)
    (folder / "main.go").write_text(
        f"package main\n\nimport (\n{imports})\n\nfunc main() {{\n"
        "\tnames := map[string]int{}\n"
        f"\tfor _, list := range [][]func([]int, map[string]int) (string, error){{{lists}}} {{\n"
        "\t\tfor _, call := range list {\n\t\t\tcall([]int{1, 2, 3}, names)\n\t\t}\n\t}\n}\n"
    )


def big_program(toolchain: Toolchain, mode: str = "plain") -> Path:
    """Return the program, from the cache if it can; building it takes minutes."""
    folder = cache_dir() / "bigprogram" / f"big{PACKAGES}x{FUNCTIONS_PER_PACKAGE}"
    with locked(folder.with_suffix(".lock")):
        write_sources(folder)
    return toolchain.build(folder, mode)

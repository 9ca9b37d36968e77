"""A Go program of about 100 MB: generated packages of functions, with calls that get inlined."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from tests.toolchains import Toolchain, cache_dir, locked

PACKAGES: Final = 100
FUNCTIONS: Final = 300
"""Functions of a package, not counting methods, wrappers and closures."""

SEED: Final = 20_000_000

HELPERS: Final = """package {package}

import (
	"errors"
	"fmt"
)

type Pair struct {{
	name  string
	value int
}}

type Adder interface{{ add(value int) int }}

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

func (p *Pair) add(value int) int {{
	p.value += fold(value)
	return p.value
}}

func (p Pair) odd() error {{
	if p.value&1 == 1 {{
		return fmt.Errorf("%s: %w", p.name, errOdd)
	}}
	return nil
}}

func last[T any](items []T) T {{ return items[len(items)-1] }}

func sum[T int | float64](items []T) (total T) {{
	for _, item := range items {{
		total += item
	}}
	return total
}}
"""

# Statements over: values []int, names map[string]int, text *strings.Builder, pair *Pair, n int.
STATEMENTS: Final = (
    "n += fold(n + {a})",
    "n = pair.add(clamp(n, -{a}, {b}))",
    "names[fmt.Sprint(n, {a})] += {b}",
    "for i, value := range values {{\n\t\tn += value*{a} + i\n\t}}",
    "if n > {a} {{\n\t\ttext.WriteString(strings.Repeat(pair.name, clamp(n, 0, 3)))\n\t}}",
    "if err := pair.odd(); err != nil && n > {a} {{\n\t\treturn n, err\n\t}}",
    "values = append(values, n, fold({a}), {b})",
    "text.WriteByte(byte('a' + fold(n)%{b}))",
    "func() {{\n\t\tdefer text.Reset()\n\t\tn = fold(len(names) + {a})\n\t}}()",
    "switch n % {b} {{\n\tcase 0:\n\t\tn++\n\tcase 1:\n\t\tn = fold(n)\n"
    "\tdefault:\n\t\tn -= {a}\n\t}}",
    "n += sum(values)\n\tif len(values) > {b} {{\n\t\tn ^= last(values)\n\t}}",
    "pair = &Pair{{name: text.String(), value: n + {a}}}",
    "n += Adder(pair).add({b})",
    "go func(value int) {{ names[pair.name] = fold(value + {a}) }}(n)",
    'for n > {a} && strings.HasPrefix(pair.name, "x") {{\n\t\tn /= 2\n\t}}',
)


def function(number: int, choice: random.Random) -> str:
    """Return the source of one function."""
    lines = [
        template.format(a=choice.randrange(1, 5000), b=choice.randrange(2, 90))
        for template in choice.choices(STATEMENTS, k=choice.randrange(2, 12))
    ]
    body = "".join(f"\t{line}\n" for line in lines)
    return (
        f"\nfunc F{number}(values []int, names map[string]int, text *strings.Builder, pair *Pair,"
        f" n int) (int, error) {{\n{body}"
        f'\tif n < -{number} {{\n\t\treturn n, fmt.Errorf("F{number}: %d", n)\n\t}}\n'
        "\tif strings.Contains(pair.name, text.String()) {\n\t\treturn last(values), nil\n\t}\n"
        "\treturn n, nil\n}\n"
    )


def write_sources(folder: Path) -> None:
    """Write the module to `folder`; always the same."""
    choice = random.Random(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text("module ebpfprof.test/big\n\ngo 1.19\n")
    names = [f"p{number:03d}" for number in range(PACKAGES)]
    kind = "func([]int, map[string]int, *strings.Builder, *Pair, int) (int, error)"
    head = 'import (\n\t"fmt"\n\t"strings"\n)\n'
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "helpers.go").write_text(HELPERS.format(package=name))
        for part in range(0, FUNCTIONS, 150):
            body = "".join(function(number, choice) for number in range(part, part + 150))
            (folder / name / f"part{part:03d}.go").write_text(f"package {name}\n\n{head}{body}")
        listed = ", ".join(f"F{number}" for number in range(FUNCTIONS))
        (folder / name / "all.go").write_text(
            f'package {name}\n\nimport "strings"\n\nvar all = []{kind}{{{listed}}}\n\n'
            "// Run calls every function.\nfunc Run(names map[string]int) {\n"
            "\tfor n, call := range all {\n"
            "\t\tcall([]int{1, 2, n}, names, new(strings.Builder), new(Pair), n)\n\t}\n}\n"
        )
    imports = "".join(f'\t"ebpfprof.test/big/{name}"\n' for name in names)
    calls = "".join(f"\t{name}.Run(names)\n" for name in names)
    (folder / "main.go").write_text(
        f'package main\n\nimport (\n\t"fmt"\n\t"io"\n\t"os"\n\n{imports})\n\n'
        f"func main() {{\n\tnames := map[string]int{{}}\n"
        '\tif len(os.Args) == 1 {\n\t\tfmt.Println("ready", os.Getpid())\n'
        "\t\tio.Copy(io.Discard, os.Stdin)\n\t\treturn\n\t}\n"
        f"{calls}}}\n"
    )


def big_program(toolchain: Toolchain, mode: str = "plain") -> Path:
    """Return the program, from the cache if it can; building it takes minutes."""
    folder = cache_dir() / "bigprogram" / "big"
    with locked(folder.with_suffix(".lock")):
        write_sources(folder)
    return toolchain.build(folder, mode)

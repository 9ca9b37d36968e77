"""Small C and C++ programs with calls inlined across files, compiled as a test wants them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

HEADER: Final = """
static inline __attribute__((always_inline)) int twice(int value) {
    return value * 2 +
        (value > 9 ? value / 3 : 1);
}
static inline __attribute__((always_inline)) int four_times(int value) {
    int once = twice(value);
    return twice(once) ^ value;
}
"""
C_PARTS: Final = {
    "parts/first.c": """#include "inlined.h"
#include <stdlib.h>
int first(int value) {
    int nested(int by) { return four_times(by) + value; }
    for (int i = 0; i < value; i++)
        value += four_times(i);
    if (value == 77)
        abort();
    int (*volatile call)(int) = nested;
    return call(value);
}
""",
    "main.c": """#include "inlined.h"
#include <stdio.h>
int first(int);
__attribute__((noinline)) static int third(int value) { return twice(value) + first(value); }
int main(int count, char **words) {
    printf("%d %s\\n", third(count) + four_times(count), words[0]);
    return 0;
}
""",
}
CPP_PARTS: Final = {
    "parts/first.cc": """#include "inlined.h"
#include <algorithm>
#include <map>
#include <string>
#include <vector>
namespace outer {
template <class T> struct Holder {
    T value;
    T scaled(T by) const { return four_times(value) * by; }
};
int sorted(int count) {
    std::vector<int> all(count);
    std::sort(all.begin(), all.end(), [](int a, int b) { return twice(a) > b; });
    return all.empty() ? 3 : all[0];
}
}
int first(int value) {
    std::map<std::string, int> names;
    names[std::to_string(value)] = value;
    outer::Holder<long> holder{value};
    for (auto &name : names)
        value += name.second + holder.scaled(value) + outer::sorted(value);
    return value;
}
""",
    "main.cc": """#include "inlined.h"
#include <cstdio>
int first(int);
int main(int count, char **words) {
    auto call = [&](int by) { return first(by) + four_times(by); };
    std::printf("%d %s\\n", call(count), words[0]);
}
""",
}
LANGUAGES: Final = {"c": ("gcc", C_PARTS), "c++": ("g++", CPP_PARTS)}


def native_program(folder: Path, language: str, *flags: str) -> Path:
    """Compile the program of a language with -O2 in `folder`."""
    compiler, parts = LANGUAGES[language]
    (folder / "parts").mkdir(exist_ok=True)
    (folder / "headers").mkdir(exist_ok=True)
    (folder / "headers" / "inlined.h").write_text(HEADER)
    for name, text in parts.items():
        (folder / name).write_text(text)
    built = folder / "program"
    command = [compiler, "-O2", "-Iheaders", *flags, *parts, "-o", str(built)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return built

#!/usr/bin/env python3
"""Writes a header with the text of each FILE as a constant. Run: embed.py OUT NAME=FILE..."""
import pathlib
import sys

lines = ["// Made by cli/report/embed.py.", "#pragma once", "", "#include <string_view>", "", "namespace dlaunch {", ""]
for part in sys.argv[2:]:
    name, path = part.split("=", 1)
    text = pathlib.Path(path).read_text(encoding="utf-8")
    lines.append(f'inline constexpr std::string_view {name} = R"~embed~({text})~embed~";')
lines += ["", "}  // namespace dlaunch", ""]
pathlib.Path(sys.argv[1]).write_text("\n".join(lines), encoding="utf-8")

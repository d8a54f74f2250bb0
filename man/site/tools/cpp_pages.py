"""The pages of the C and C++ API: Doxygen reads the public headers, and Breathe shows what it found."""

import subprocess
import sys
import xml.etree.ElementTree as Xml

# Each header, and what it is about.
C_HEADERS = {"ring.h": "collectives", "reductions.h": "reductions with terms of their own",
             "outer.h": "local training with an outer optimizer", "sites.h": "local training over several sites",
             "elastic.h": "state that survives"}
CPP_HEADERS = {"ring.hpp": "collectives", "ring_ranges.hpp": "calls on containers", "elastic.hpp": "state that survives",
               "bucketer.hpp": "gradients while backpropagation runs",
               "bucket_hooks.hpp": "gradients in fewer bytes, or without slow ranks",
               "outer.hpp": "local training with an outer optimizer"}
FOLDERS = ("ring/include/dlaunch", "elastic/include/dlaunch")
DIRECTIVES = {kind: "doxygen" + kind for kind in ("function", "enum", "typedef", "variable")}


def run_doxygen(source, tools, out):
    """Leaves the XML in out/xml. What Doxygen has to complain about ends the build."""
    out.mkdir(parents=True, exist_ok=True)
    reader = f"{sys.executable} {tools / 'comments_for_doxygen.py'}"
    settings = (tools / "Doxyfile").read_text() + f"""
OUTPUT_DIRECTORY = {out}
INPUT = {' '.join(str(source / folder) for folder in FOLDERS)}
FILTER_PATTERNS = *.h="{reader}" *.hpp="{reader}"
"""
    subprocess.run(["doxygen", "-"], input=settings, text=True, check=True, cwd=source)


def title(header, about):
    return f"# <dlaunch/{header}>: {about}\n".replace("<", "\\<")


def directive(kind, name):
    options = "\n:members:\n:undoc-members:" if kind in ("doxygenclass", "doxygenstruct") else ""
    return f"\n```{{{kind}}} {name}{options}\n```\n"


def compound(xml, header):
    name = header.replace("_", "__").replace(".", "_8")  # as Doxygen names files
    return Xml.parse(xml / f"{name}.xml").getroot().find("compounddef")


def c_page(xml, header, about):
    """The header's own comment, its functions and enumerations, and its structures."""
    structs = "".join(directive("doxygenstruct", inner.text) for inner in compound(xml, header).findall("innerclass"))
    return title(header, about) + f"""
```{{doxygenfile}} {header}
:sections: detaileddescription typedef enum func
```

## Structures
{structs}"""


def cpp_page(xml, header, about):
    """The header's own comment, its classes, and what else it declares in namespace dl."""
    out = title(header, about) + f"\n```{{doxygenfile}} {header}\n:sections: detaileddescription\n```\n"
    for inner in compound(xml, header).findall("innerclass"):
        if inner.text.count("::") == 1 and "<" not in inner.text:
            kind = "doxygenclass" if inner.get("refid").startswith("class") else "doxygenstruct"
            out += f"\n## {inner.text}\n" + directive(kind, inner.text)
    others = ""
    for member in Xml.parse(xml / "namespacedl.xml").getroot().iter("memberdef"):
        if member.find("location").get("file").endswith("/" + header):
            name = "dl::" + member.find("name").text
            if member.get("kind") == "function":
                name += member.find("argsstring").text
            others += directive(DIRECTIVES[member.get("kind")], name)
    return out + (f"\n## Beside the classes\n{others}" if others else "")


def write(folder, source, xml):
    headers = {header.name for place in FOLDERS for header in (source / place).iterdir()}
    if headers != {*C_HEADERS, *CPP_HEADERS}:
        raise SystemExit(f"cpp_pages: the public headers are {sorted(headers)}; tell what each is about")
    folder.mkdir(parents=True, exist_ok=True)
    for header, about in C_HEADERS.items():
        (folder / f"{header}.md").write_text(c_page(xml, header, about), encoding="utf-8")
    for header, about in CPP_HEADERS.items():
        (folder / f"{header}.md").write_text(cpp_page(xml, header, about), encoding="utf-8")

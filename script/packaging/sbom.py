"""Lists the components of this build's programs and libraries, as CycloneDX JSON, for Meson.

usage: sbom.py VERSION NAME=VERSION=LICENSE=KIND…
KIND: header or static for code that is compiled or linked in; system for a library of the system that is linked, or
loaded if it exists. An empty VERSION stands for any version.
"""

import json
import sys


def component(word):
    name, version, license_id, kind = word.split("=")
    found = {"type": "library", "bom-ref": name, "name": name}
    if version:
        found["version"] = version
    found["licenses"] = [{"license": {"id": license_id}}]
    found["scope"] = "optional" if kind == "system" else "required"
    found["properties"] = [{"name": "dlaunch:linkage", "value": kind}]
    return found


def main():
    version, *words = sys.argv[1:]
    components = [component(word) for word in words]
    print(json.dumps({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "dlaunch", "name": "dlaunch", "version": version,
                                   "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [{"ref": "dlaunch", "dependsOn": [found["name"] for found in components]}],
    }, indent=2))


main()

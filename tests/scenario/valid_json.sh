# Scenarios that check JSON against the published schemas source this after common.sh or hosts.sh.
valid_python=
for one in python3 /usr/bin/python3; do
  "$one" -W ignore -c 'import jsonschema; jsonschema.Draft202012Validator' 2>/dev/null && { valid_python=$one; break; }
done
[ -n "$valid_python" ] || skip "no Python with jsonschema 4 (python3-jsonschema)"

cat > valid.py <<'P'
"""valid.py SCHEMA FILE [WORD…]: FILE is valid, a line for each value where SCHEMA ends in '*'; it contains the words."""
import json, pathlib, sys, warnings
warnings.simplefilter("ignore")
import jsonschema
folder = pathlib.Path(sys.argv[1]).parent.resolve()
name = pathlib.Path(sys.argv[1]).name
schema = json.loads((folder / name.rstrip("*")).read_text())
jsonschema.Draft202012Validator.check_schema(schema)
text = pathlib.Path(sys.argv[2]).read_text()
values = [json.loads(line) for line in text.splitlines()] if name.endswith("*") else [json.loads(text)]
assert values, "nothing was written"
resolver = jsonschema.RefResolver(folder.as_uri() + "/" + name.rstrip("*"), schema)
for value in values:
    for error in jsonschema.Draft202012Validator(schema, resolver=resolver).iter_errors(value):
        sys.exit(f"{sys.argv[2]}: {list(error.absolute_path)}: {error.message}")
for word in sys.argv[3:]:
    assert f'"{word}"' in text, f"{sys.argv[2]}: no {word}"
P
# valid SCHEMA FILE [WORD…]: the file must match the schema, and have these members.
valid() {
  local schema=$1; shift
  "$valid_python" valid.py "$SOURCE/man/schema/$schema" "$@" 2>why || fail "$(cat why; cat "$1")"
}

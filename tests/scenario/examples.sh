# The installed examples in C, in C++, and in Python with NumPy: each builds, runs and prints the output that its header
# shows. examples_torch and examples_parquet run the examples that need more packages.
source "$SOURCE/tests/scenario/common.sh" || exit 1
source "$SOURCE/tests/scenario/installed_examples.sh"
need_package
python=${PACKAGE_PYTHON:-/usr/bin/python3}
"$python" -c 'import numpy' 2>/dev/null || skip "NumPy is not installed"
examples_up "$python"

# A folder with a README.md of its own has a scenario of its own. All other examples are installed.
own=$(cd "$SOURCE/examples" && for readme in */README.md; do [ ! -f "$readme" ] || echo "${readme%/*}"; done)
files() {
  (cd "$1" && find . -type f ! -name meson.build ! -path '*/__pycache__/*' | grep -vE "^\\./(${own//$'\n'/|}|-)/" | sort)
}
files "$SOURCE/examples" >../sources; files . >../installed
diff ../sources ../installed >../differ || fail "not all examples are installed: $(cat ../differ)"

# Modules that other examples import are not programs. The trainers of images have scenarios of their own.
needs_more=$(grep -lE '^ *(import|from) (torch|pyarrow|fashion_mnist|dlaunch\.torch)\b' $(grep '\.py$' ../installed))
programs=$(grep -E '\.(cc|c|py)$' ../installed |
  grep -vE '/(fashion_mnist|train_fashion_mnist.*|layer|plot|workers)\.[a-z]+$' | grep -vxF "$needs_more")
run_examples $programs
# Each program exists in both languages, except those that need PyTorch, pyarrow or CUDA.
for program in $(grep '\.cc$' ../installed | grep -v cuda); do
  [ -f "${program%.cc}.py" ] || fail "$program has no sibling in Python"
done
# The manifest equals the output of the command in its header, except for the secret and the version.
command=$(sed -n 's/^#   \$ \(dlaunch .*\)/\1/p' cluster/kubernetes.yaml)
of_any_job() { sed -E 's/^(  secret: )"[^"]+"/\1/; s/(# Written by dlaunch) [0-9.]+/\1/'; }
$command >../printed || fail "$command"
diff <(sed '1,/^$/d' cluster/kubernetes.yaml | of_any_job) <(of_any_job <../printed) >../differ ||
  fail "examples/cluster/kubernetes.yaml is not what its command prints: $(cat ../differ)"
# README.md names each program, and no other file.
grep -oE '[a-z_/-]+\.(cc|cu|c|h|py|sh|yaml)\b' README.md | grep / | sort -u >../named
sed -nE 's#^\./(.*/.*\.(cc|py|sh|yaml))$#\1#p' ../installed | grep -vE '/(layer|plot|workers)\.py$' >../there
diff ../named ../there >../differ || fail "README.md and the folder differ: $(cat ../differ)"

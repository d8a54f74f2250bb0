# The example that reads Parquet files prints the output that its header shows. It needs pyarrow: PARQUET_PYTHON names a
# Python that has pyarrow and NumPy.
source "$SOURCE/tests/scenario/common.sh" || exit 1
source "$SOURCE/tests/scenario/installed_examples.sh"
python=${PARQUET_PYTHON:-/usr/bin/python3}
"$python" -c 'import numpy, pyarrow.parquet' 2>/dev/null || skip "pyarrow is not installed"
need_package
examples_up "$python"
run_examples data/parquet_shards.py

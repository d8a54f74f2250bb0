# Calls with more elements or bytes than an int or one system call can count: in shared memory, over sockets
# and as messages.
source "$SOURCE/tests/scenario/common.sh"
available=$(awk '$1 == "MemAvailable:" { print int($2 / 1048576) }' /proc/meminfo)
[ "$available" -ge 16 ] || skip "needs 16 GiB of memory, $available are available"

bytes=2200000000
for way in 'shm all_reduce' 'tcp all_reduce' 'shm all_gather' 'tcp sendrecv'; do
  set -- $way
  run dlaunch --transport "$1" --nproc 2 --output raw dlaunch-bench "$2" -b $bytes -e $bytes -d uint8 -n 1 -w 0 --csv
  expect_code 0
  awk -F, -v least=$((bytes - 2)) 'NR > 1 { rows++; if ($12 != 0 || $3 < least) bad++ } END { exit bad > 0 || rows < 1 }' out ||
    fail "$way: $(tail -n 2 out)"
done

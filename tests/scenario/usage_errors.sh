# A wrong command line causes one clear line with a hint and the documented exit code, and no worker starts.
source "$SOURCE/tests/scenario/common.sh"

# refused CODE PATTERN ARGS…: dlaunch must refuse these arguments with this code and message.
refused() {
  local wanted=$1 pattern=$2; shift 2
  run dlaunch "$@"
  expect_code "$wanted"
  expect_err "^dlaunch: $pattern"
  [ ! -s out ] || fail "stdout is not empty"
  local lines; lines=$(wc -l <err)
  if [ "$wanted" = 64 ]; then
    [ "$lines" = 2 ] || fail "$lines lines of stderr, expected 2"
    expect_err "^Try 'dlaunch --help'\$"
  else
    [ "$lines" = 1 ] || fail "$lines lines of stderr, expected 1"
  fi
  [ ! -e ran ] || fail "a worker was started"
}

refused 64 "unknown option '--nprok'; did you mean '--nproc'\?" --nprok 2 touch ran
refused 64 "unknown option '--npro'; did you mean '--nproc'\?" --npro 2 touch ran
refused 64 "'-mca' of mpirun: 'rmaps_base_x' is a parameter of mpirun itself" -np 2 -mca rmaps_base_x b touch ran
refused 64 "--nproc: '0' is not a whole number" --nproc 0 touch ran
refused 64 "--nproc: 'many' is not a whole number" --nproc many touch ran
refused 64 "--nproc asks for 2 workers and -n for 4" --nproc 2 -n 4 touch ran
refused 64 "--nproc needs a value: N\|auto\|gpu" --nproc
refused 64 "no program given" --nproc 2
refused 64 "no program given"
refused 64 "no module given" -m
refused 64 "doctor takes only options: leave out 'touch'" doctor touch ran
refused 64 "doctor takes only options: leave out 'touch'" doctor --nproc 2 -- touch ran
refused 64 "doctor checks hosts that exist now: leave out '--emit'" doctor --emit kubernetes --image i
refused 64 "--gpus has no effect without --emit; did you mean --nproc 2, a worker for each GPU\?" --gpus 2 touch ran
refused 64 "--nnodes 2 needs --rdzv" --nnodes 2 touch ran
refused 64 "--tls: hosts that are started by hand need a secret for it" --nnodes 2 --rdzv localhost:1 \
  --tls --dry-run touch ran
printf 'SwitchName=s0 Nodes=a\nSwitchName=s1 Nodes=a\n' >topology.conf
refused 64 "topology.conf:2: node a is already below s0" --nnodes 2 --rdzv localhost:1 --node-rank 0 \
  --topology topology.conf touch ran
refused 64 "--topology: read /nonexistent/t: No such file" --nnodes 2 --rdzv localhost:1 --node-rank 0 \
  --topology /nonexistent/t touch ran
refused 64 "--rack has no effect on one host" --rack r touch ran
refused 64 "-H and --node-rank contradict each other" -H 192.0.2.1:4 --node-rank 0 touch ran
refused 64 "--rdzv: '192.0.2.1' is not an address of this machine" --rdzv tcp://192.0.2.1:1 touch ran
refused 64 "--bind: 'cores' is not one of none, core, l3, numa, socket, gpu; did you mean 'core'\?" --bind cores touch ran
refused 64 "--redirects needs --log-dir" --redirects 3 touch ran
refused 64 "--timestamps has no effect with --output raw" --output raw --timestamps touch ran
refused 64 "--only-rank: .*2" --nproc 2 --only-rank 2 touch ran
refused 64 "--no-restart-codes: number: '300' is not a whole number from 0 to 255" \
  --max-restarts 1 --no-restart-codes 300 touch ran
refused 64 "--grace: 'soon' is not a duration" --grace soon touch ran
refused 66 "--hostfile: read /nonexistent/hosts: No such file" --hostfile /nonexistent/hosts touch ran
refused 66 "read /nonexistent/c.toml: No such file" --config /nonexistent/c.toml touch ran
refused 73 "--error-file: write /nonexistent/e.json" --error-file /nonexistent/e.json touch ran
printf 'localhost slots=2\nlocalhost slots=two\n' >hosts
refused 65 "hosts:2: slots: 'two' is not a whole number" --hostfile hosts touch ran
printf '# job\nnproc = 2\nlogdir = "x"\n' >job.toml
refused 65 "job.toml:3: 'logdir' is not an option for a file; did you mean 'log-dir'\?" \
  --config job.toml touch ran
printf 'nproc 2\n' >bad.toml
refused 65 "bad.toml:1: expected '=' after 'nproc'" --config bad.toml touch ran
printf 'a secret of many bytes' >secret && chmod 644 secret
mkfifo -m 600 pipe
refused 64 "--secret-file: secret file pipe is a folder, a pipe or the like, and no file" \
  --secret-file pipe touch ran
refused 64 "--secret-file: secret file secret may be read by others" --secret-file secret touch ran

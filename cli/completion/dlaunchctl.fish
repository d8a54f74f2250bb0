# fish completion for dlaunchctl: commands, their options, ids of jobs.
function __dlaunchctl_jobs
    dlaunchctl list 2>/dev/null | awk 'NR > 1 && $1 != "?" { print $1 }'
end

set -l commands status top goodput events tail wait list stacks resize restart drain undrain stop
set -l before "not __fish_seen_subcommand_from $commands"
complete -c dlaunchctl -f
complete -c dlaunchctl -n "$before" -a status -d 'What the job and its workers are doing'
complete -c dlaunchctl -n "$before" -a top -d 'How much its workers do, again and again'
complete -c dlaunchctl -n "$before" -a events -d 'What has happened in the job, as lines of JSON'
complete -c dlaunchctl -n "$before" -a tail -d 'The last lines of a worker\'s output'
complete -c dlaunchctl -n "$before" -a wait -d 'Wait for the job\'s end, and exit with its exit code'
complete -c dlaunchctl -n "$before" -a list -d 'This user\'s jobs on this machine'
complete -c dlaunchctl -n "$before" -a goodput -d 'Where the time of the job went'
complete -c dlaunchctl -n "$before" -a stacks -d 'Where the threads of its workers are'
complete -c dlaunchctl -n "$before" -a resize -d 'Let an elastic job grow or shrink'
complete -c dlaunchctl -n "$before" -a restart -d 'Put a new process in the place of a worker'
complete -c dlaunchctl -n "$before" -a drain -d 'Take a host out of an elastic job'
complete -c dlaunchctl -n "$before" -a undrain -d 'Let a drained host come back'
complete -c dlaunchctl -n "$before" -a stop -d 'End the job'
complete -c dlaunchctl -n "$before" -l version -d 'Print the version'
complete -c dlaunchctl -l leader -x -d 'The leader of a job on another machine, or where it is elected'
complete -c dlaunchctl -l secret-file -r -F -d 'Its secret'
complete -c dlaunchctl -l tls -d 'It has --tls'
complete -c dlaunchctl -l help -d 'Print this'
complete -c dlaunchctl -n 'not __fish_seen_subcommand_from list' -l job -x -a '(__dlaunchctl_jobs)' -d 'The job'
complete -c dlaunchctl -n '__fish_seen_subcommand_from status top goodput list stacks' -l json -d 'JSON in place of text'
complete -c dlaunchctl -n '__fish_seen_subcommand_from top' -l interval -x -d 'Seconds from look to look'
complete -c dlaunchctl -n '__fish_seen_subcommand_from wait' -l timeout -x -d 'No longer'
complete -c dlaunchctl -n '__fish_seen_subcommand_from events' -l follow -d 'Also later events'
complete -c dlaunchctl -n '__fish_seen_subcommand_from tail' -s f -l follow -d 'Also later lines'
complete -c dlaunchctl -n '__fish_seen_subcommand_from tail' -s n -l lines -x -d 'So many lines'
complete -c dlaunchctl -n '__fish_seen_subcommand_from top' -l once -d 'Only once'

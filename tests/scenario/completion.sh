# Bash completion: options, values, and the program's own words.
source "$SOURCE/tests/scenario/common.sh"
source "$BUILD/cli/completion/dlaunch" || fail "the completion does not load"
complete -p dlaunch >/dev/null || fail "nothing is registered for dlaunch"
mkdir folder && touch hosts.txt folder/inner

# completes WORD…: completes the last word, which is under the cursor, and sets COMPREPLY.
completes() {
  COMP_WORDS=(dlaunch "$@")
  COMP_CWORD=$#
  COMPREPLY=()
  _dlaunch
}
offers() {
  local wanted=$1 reply; shift
  completes "$@"
  for reply in "${COMPREPLY[@]}"; do [ "$reply" = "$wanted" ] && return; done
  fail "dlaunch $*: '$wanted' is not among: ${COMPREPLY[*]}"
}
offers_not() {
  local unwanted=$1 reply; shift
  completes "$@"
  for reply in "${COMPREPLY[@]}"; do [ "$reply" != "$unwanted" ] || fail "dlaunch $*: '$unwanted'"; done
}

offers --nproc --np
offers --report-bindings --rep
offers_not --rdzv-backend --rdzv
offers auto --nproc a
offers l3 --bind ''
offers l3 --bind = l
offers l3 --bind =
offers hosts.txt --hostfile h
offers hosts.txt --topology h
offers folder --log-dir f
offers_not hosts.txt --log-dir h
offers --quiet --nproc 4 --bind core --q
offers --quiet --nproc = 4 --q
offers hosts.txt --nproc 4 cat h
offers_not --quiet --nproc 4 cat --q
offers hosts.txt -- h
offers_not --quiet -- --q
offers doctor doc
offers_not doctor --nproc 4 doc
offers --hosts doctor --ho
offers auto doctor --nproc a
offers hosts.txt -- doctor h

# The completion of dlaunchctl.
source "$SOURCE/cli/completion/dlaunchctl" || fail "the completion of dlaunchctl does not load"
complete -p dlaunchctl >/dev/null || fail "nothing is registered for dlaunchctl"
ctl_completes() { COMP_WORDS=(dlaunchctl "$@"); COMP_CWORD=$#; COMPREPLY=(); _dlaunchctl; echo "${COMPREPLY[*]}"; }
[ "$(ctl_completes re)" = "resize restart" ] || fail "dlaunchctl re: ${COMPREPLY[*]}"
[ "$(ctl_completes --job x st)" = "status stacks stop" ] || fail "dlaunchctl --job x st"
[ "$(ctl_completes status --)" = "--help --job --leader --secret-file --tls --json" ] || fail "dlaunchctl status --"
[ "$(ctl_completes --leader h:1 --secret-file s --job x st)" = "status stacks stop" ] || fail "dlaunchctl --leader h:1 … st"
[ "$(ctl_completes tail --l)" = "--leader --lines" ] || fail "dlaunchctl tail --l"
[ "$(ctl_completes stop --j)" = "--job" ] || fail "dlaunchctl stop --j"

# fish and zsh.
if command -v fish >/dev/null; then
  export HOME=$tmp XDG_DATA_HOME=$tmp XDG_CONFIG_HOME=$tmp  # fish writes its history there
  # fish_offers WORD LINE: completing LINE offers WORD.
  fish_offers() {
    run fish --no-config -c "source $BUILD/cli/completion/dlaunch.fish; source $SOURCE/cli/completion/dlaunchctl.fish; complete -C '$2'"
    expect_code 0; cut -f 1 out | grep -qxF -- "$1" || fail "fish does not offer $1 for: $2"
  }
  fish_offers --nproc 'dlaunch --np'
  fish_offers auto 'dlaunch --nproc a'
  fish_offers hosts.txt 'dlaunch --hostfile h'
  fish_offers folder/ 'dlaunch --log-dir f'
  fish_offers --quiet 'dlaunch --nproc 4 --q'
  fish_offers doctor 'dlaunch doc'
  fish_offers --hosts 'dlaunch doctor --ho'
  fish_offers hosts.txt 'dlaunch --nproc 4 cat h'
  run fish --no-config -c "source $BUILD/cli/completion/dlaunch.fish; complete -C 'dlaunch --nproc 4 cat --q'"
  grep -q -- --quiet out && fail "fish offers dlaunch's own options behind the program"
  fish_offers restart 'dlaunchctl re'
  fish_offers --once 'dlaunchctl top --o'
  fish_offers --follow 'dlaunchctl events --f'
else
  echo "fish is not installed: its completion is not tried"
fi
if command -v zsh >/dev/null; then
  for file in "$BUILD/cli/completion/_dlaunch" "$SOURCE/cli/completion/_dlaunchctl"; do
    run zsh -n "$file"; expect_code 0
  done
  # zsh_offers WORD LINE: at a terminal, LINE and a tab show WORD, which LINE does not have.
  zsh_offers() {
    run zsh -f "$SOURCE/tests/scenario/zsh_offers.zsh" "$BUILD/cli/completion" "$SOURCE/cli/completion" -- "$2" "$1"
    expect_code 0
  }
  zsh_offers --same-failure-limit 'dlaunch --same'
  zsh_offers numa 'dlaunch --bind '
  zsh_offers hosts.txt 'dlaunch --hostfile h'
  zsh_offers --straggler-window 'dlaunch --nproc 4 --strag'
  zsh_offers doctor 'dlaunch doc'
  zsh_offers undrain 'dlaunchctl und'
  zsh_offers events 'dlaunchctl ev'
else
  echo "zsh is not installed: its completion is not tried"
fi

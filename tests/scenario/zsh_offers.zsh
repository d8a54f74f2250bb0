# usage: zsh -f zsh_offers.zsh FOLDER… -- LINE WORD: a shell at a terminal, with completions from the
# folders, that is typed LINE and a tab shows WORD then.
zmodload zsh/zpty
zmodload zsh/datetime
folders=()
while [[ $1 != -- ]]; do folders+=($1); shift; done
line=$2 word=$3
zpty -b shell 'zsh -f -i'
seen=''
# Reads until the shell has shown the text.
await() {
  local piece end=$((EPOCHREALTIME + 40))
  while [[ $seen != *"$1"* ]]; do
    if zpty -rt shell piece; then
      seen+=$piece
    elif ((EPOCHREALTIME > end)); then
      print -r -- "not shown: $1; shown: ${(V)seen}" >&2
      zpty -d shell
      exit 1
    else
      zselect -t 2 2>/dev/null || sleep 0.02
    fi
  done
}
zpty -w shell "PS1='> ' LISTMAX=1000; stty cols 160 rows 200; unset zle_bracketed_paste; setopt auto_list no_beep; fpath=($folders \$fpath); autoload -Uz compinit; compinit -u -D; print com''plete-now"
await complete-now
seen=''
zpty -wn shell "$line"$'\t\t'
await "$word"
zpty -d shell

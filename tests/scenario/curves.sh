# same_curve STEPS A B [APART]: two files of losses, equal but for so much; 1e-5: the last digit but one of
# those printed. Sourced.
same_curve() {
  paste "$2" "$3" |
    awk -v steps="$1" -v apart="${4:-1e-5}" '{ d = $2 - $4; if (d > apart || d < -apart) bad++ } END { exit bad > 0 || NR != steps }'
}

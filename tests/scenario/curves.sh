# Sourced. same_curve STEPS A B [APART]: the losses in two files differ by at most APART. The default 1e-5 is the last
# printed digit but one.
same_curve() {
  paste "$2" "$3" |
    awk -v steps="$1" -v apart="${4:-1e-5}" '{ d = $2 - $4; if (d > apart || d < -apart) bad++ } END { exit bad > 0 || NR != steps }'
}

# script/install-deps asks for the packages that only root could install, and then ends well, so that script/demo goes on
# without optional ones. Stand-ins for Debian's programs note what it does.
source "$SOURCE/tests/scenario/common.sh"
mkdir bin
stand_in() { printf '#!/bin/bash\n%s\n' "$2" >"bin/$1" && chmod +x "bin/$1"; }
ln -s "$(command -v bash)" "$(command -v grep)" bin
stand_in id 'echo 1000'
stand_in dpkg-query 'exit 1'
stand_in apt-get 'echo "apt-get $*" >>calls; [[ " $* " != *" update "* ]]'
install_deps() { rm -f calls; run env PATH="$PWD/bin" bash "$SOURCE/script/install-deps"; expect_code 0; }

install_deps
expect_err '^Only root can install packages\. Please install: g\+\+ meson '
[ ! -e calls ] || fail "it has called $(cat calls)"
# sudo that needs a password, and has no terminal to ask for it.
stand_in sudo 'exit 1'
install_deps
expect_err 'Please install: g\+\+ meson '
[ ! -e calls ] || fail "it has called $(cat calls)"
# Old lists of packages may do.
stand_in sudo '[ "$1" != -n ] || shift; "$@"'
install_deps
expect_out '^Installing: g\+\+ meson '; expect_err '^could not update the lists of packages$'
grep -q '^apt-get .* install .* g++ meson ' calls || fail "it has installed nothing: $(cat calls)"
stand_in id 'echo 0'; rm bin/sudo
install_deps
grep -q '^apt-get .* install .* g++ meson ' calls || fail "root has installed nothing: $(cat calls)"

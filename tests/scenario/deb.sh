# The packages for Debian that `script/package deb` has put into the folder DEBS. lintian finds no fault. In a
# Debian without files of this machine apt installs the packages and their dependencies, and the README's
# programs build and run. After a purge nothing is left. DEBS_ROOT may name the root of such a Debian, with apt,
# g++ and pkg-config, which the scenario does not change. Otherwise mmdebstrap makes one, in some minutes.
source "$SOURCE/tests/scenario/installed.sh" || exit 1
for tool in dpkg-buildpackage dh lintian; do command -v $tool >/dev/null || skip "$tool is not installed"; done
[ -n "${DEBS:-}" ] || skip "DEBS names no folder with packages of script/package deb"
root || skip "only root installs packages"
changes=$(ls -t "$DEBS"/dlaunch_*.changes | head -n 1); [ -s "$changes" ] || fail "$DEBS has no dlaunch_*.changes"
debs=$(sed -n 's/^ [0-9a-f]\{64\} [0-9]* \(.*\.deb\)$/\1/p' "$changes")
for name in dlaunch libdlring0 libdlelastic0 libdlring-dev python3-dlaunch dlaunch-dbgsym libdlring0-dbgsym; do
  grep -q "^${name}_" <<<"$debs" || fail "$changes has no package $name"
done
grep -q '^python3-dlaunch-torch_' <<<"$debs" && has_torch=1 || has_torch=0
has_numpy=1

run lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$changes"; expect_code 0
[ ! -s out ] || fail "lintian complains: $(cat out)"

code_name=$(. /etc/os-release && echo "$VERSION_CODENAME")
if [ -z "${DEBS_ROOT:-}" ]; then
  command -v mmdebstrap >/dev/null || skip "DEBS_ROOT names no Debian, and mmdebstrap is not installed"
  DEBS_ROOT=$tmp/debian
  mmdebstrap --quiet --variant=apt --include=g++,pkg-config "$code_name" "$DEBS_ROOT" 2>err ||
    skip "mmdebstrap made no Debian: $(tail -n 1 err)"
fi
# Below /mnt, because /dev is mounted in it.
clean=/mnt/clean
mount -t tmpfs layers /mnt && mkdir /mnt/upper /mnt/work $clean || fail "no room for a Debian"
mount -t overlay overlay -o "lowerdir=$DEBS_ROOT,upperdir=/mnt/upper,workdir=/mnt/work" $clean ||
  skip "overlays are not allowed here"
mount -t proc proc $clean/proc && mount --rbind /dev $clean/dev && mount -t tmpfs run $clean/run || fail "no /proc or /dev"
cp -L /etc/resolv.conf /etc/hosts $clean/etc
in_clean() { chroot $clean env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
as_clean_user() { chroot --userspec=65534:65534 --groups= $clean env -i HOME=/home/user PATH=/usr/bin:/bin sh -euxc "cd; $1"; }

mkdir $clean/debs && for deb in $debs; do [[ $deb == *-dbgsym_* ]] || cp "$DEBS/$deb" $clean/debs || fail "no $deb"; done
run in_clean apt-get -qq update
[ "$code" = 0 ] || skip "apt reaches no server: $(tail -n 1 err)"
run in_clean sh -c 'apt-get -qq install --no-install-recommends python3-numpy /debs/*.deb'; expect_code 0
for deb in $clean/debs/*.deb; do dpkg-deb -f "$deb" Package; done >names
in_clean dpkg -L $(cat names) | sort -u >installed_files
grep -qx /usr/bin/dlaunch installed_files || fail "the packages lack dlaunch: $(cat installed_files)"
files=0
while read -r file; do
  is_elf "$clean$file" || continue
  files=$((files + 1))
  hardened "$clean$file"
  readelf -dW "$clean$file" | grep -E 'R(UN)?PATH' | grep -vF '[$ORIGIN/../../torch/lib]' && fail "$file has a RUNPATH"
done <installed_files
[ "$files" -ge $((6 + has_torch)) ] || fail "only $files programs and libraries"

mkdir -p $clean/home/user && (cd $clean/home/user && readme_programs) && chown -R 65534:65534 $clean/home/user || fail "no programs"
run as_clean_user "$(cat $clean/home/user/commands)"; programs_said
if [ $has_torch = 1 ]; then
  run as_clean_user "$(readme_lines '^dlaunch .* hello_elastic.py$')"; expect_code 0
  ranks_learned
fi
run as_clean_user 'dlaunch --nproc 2 dlaunch-bench all_reduce -b 8'; expect_code 0
run as_clean_user 'dlaunch --cflags --libs'; expect_code 0; expect_out '^-ldlring$'

run in_clean dpkg --purge $(cat names); expect_code 0
while read -r file; do
  [ ! -e "$clean$file" ] || [ -d "$clean$file" ] || fail "left behind: $file"
done <installed_files
left=$(find $clean/usr $clean/etc $clean/var -xdev \( -name '*dlaunch*' -o -name '*dlring*' -o -name '*dlelastic*' \))
[ -z "$left" ] || fail "left behind: $left"

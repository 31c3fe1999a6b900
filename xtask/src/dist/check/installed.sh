# Installs a package where no systemd runs, as the README says, to the demo's page; upgrades it
# under a changed configuration, removes and purges it.
# Arguments: the package, its architecture, the root that packages.sh has filled, the line that
# installs, and how many seconds it may take from there to the page.
# Runs as root, with a network of its own.
set -eu
. "$(dirname "$0")/within.sh"
package=$1 architecture=$2 root=$3 line=$4 seconds=$5
configuration=etc/stentor/stentor.toml
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
inside() { chroot "$root" "$@" < /dev/null; }
# What apt prints is for a log.
echo 'Dpkg::Use-Pty "false";' > "$root/etc/apt/apt.conf.d/99log"
mkdir "$root/download"
cp "$package" "$root/download/"
grep PRETTY_NAME "$root/etc/os-release"
inside dpkg --add-architecture "$architecture"
sh "$(dirname "$0")/demo.sh" "$root" /download "$line" stentor "$seconds"
inside stentor check /$configuration
test -L "$root/etc/systemd/system/multi-user.target.wants/stentor.service"
test -f "$root/usr/share/man/man1/stentor-serve.1.gz"

say 'an upgrade keeps what was changed, and asks nothing'
echo 'workers = 1' >> "$root/$configuration"
inside apt-get install --yes --quiet=2 /later.deb
inside dpkg-query --show --showformat '${Version} ${Status}\n' stentor
inside stentor --version
tail -n 1 "$root/$configuration" | grep -x 'workers = 1'

say 'removed, the configuration is left; purged, nothing is'
inside apt-get remove --yes --quiet=2 stentor
test ! -e "$root/usr/bin/stentor"
tail -n 1 "$root/$configuration" | grep -x 'workers = 1'
inside apt-get purge --yes --quiet=2 stentor
inside sh /gone.sh
say 'all of it was good'

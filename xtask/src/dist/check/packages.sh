# Puts a package, a later version of it and the scripts that lie here into a root, and runs a
# command. Arguments: the package, the root, a command.
set -eu
package=$1 root=$2
shift 2
cp "$package" "$root/first.deb"
dpkg-deb -R "$package" "$root/later"
sed -i 's/^Version: .*/&+later/' "$root/later/DEBIAN/control"
dpkg-deb -z1 -b "$root/later" "$root/later.deb"
rm -rf "$root/later" "$root/etc/machine-id"
cp "$(dirname "$0")"/*.sh "$root/"
exec "$@"

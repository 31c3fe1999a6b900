# Makes a copy of this host's root that vanishes, with a package and a later version of it, and the
# scripts that lie here; then runs what is named, which finds the copy in $dir/root.
# Arguments: the package, an empty directory, a command. Runs as root, with mounts of its own.
set -eu
package=$1 dir=$2
shift 2
mount -t tmpfs none "$dir"
mkdir "$dir/upper" "$dir/work" "$dir/root"
mount -t overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" none "$dir/root"
cp "$package" "$dir/root/first.deb"
dpkg-deb -R "$package" "$dir/later"
sed -i 's/^Version: .*/&+later/' "$dir/later/DEBIAN/control"
dpkg-deb -b "$dir/later" "$dir/root/later.deb"
rm -f "$dir/root/etc/machine-id"
cp "$(dirname "$0")"/*.sh "$dir/root/"
exec "$@"

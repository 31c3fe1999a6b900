# Installs, upgrades, removes and purges a package, in a copy of this host's root that vanishes.
# Arguments: the package, and an empty directory. Runs as root, with mounts of its own.
set -eu
package=$1 dir=$2
mount -t tmpfs none "$dir"
mkdir "$dir/upper" "$dir/work" "$dir/root"
mount -t overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" none "$dir/root"
cp "$package" "$dir/root/first.deb"
dpkg-deb -R "$package" "$dir/later"
sed -i 's/^Version: .*/&+later/' "$dir/later/DEBIAN/control"
dpkg-deb -b "$dir/later" "$dir/root/later.deb"
exec chroot "$dir/root" sh -euxc '
configuration=/etc/stentor/stentor.toml
dpkg -i /first.deb
stentor check $configuration
test -L /etc/systemd/system/multi-user.target.wants/stentor.service
echo "workers = 1" >> $configuration
dpkg -i /later.deb
stentor --version
grep -q workers $configuration
dpkg -r stentor
test ! -e /usr/bin/stentor
grep -q workers $configuration
dpkg -P stentor
for dir in /etc /usr/bin /usr/lib /usr/share /var/lib; do
    find $dir -xdev -name "*stentor*" >> /left
done
cat /left
test ! -s /left'

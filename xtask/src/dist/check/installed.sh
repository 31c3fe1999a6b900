# Installs, upgrades, removes and purges a package where no systemd runs: in a root that root.sh
# has made, and with a network of its own.
set -eux
mount -t proc none /proc
configuration=/etc/stentor/stentor.toml
# Most of the time goes to the index of this host's manual, which dpkg has made anew.
sh /demo.sh 'apt-get install --yes --quiet /first.deb' stentor 60
stentor check $configuration
test -L /etc/systemd/system/multi-user.target.wants/stentor.service
echo 'workers = 1' >> $configuration
dpkg -i /later.deb
stentor --version
grep -q workers $configuration
dpkg -r stentor
test ! -e /usr/bin/stentor
grep -q workers $configuration
dpkg -P stentor
sh /gone.sh

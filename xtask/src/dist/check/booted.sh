# Installs, reloads, restarts, upgrades and purges a package under systemd, which runs this as a
# service in a root that root.sh has made; with a network of its own.
set -eu
. "$(dirname "$0")/within.sh"
configuration=/etc/stentor/stentor.toml
public=http://127.0.0.1:8080 control=http://127.0.0.1:8081
say() { echo "== $*"; }
fails() { if "$@"; then return 1; fi; }
put() { curl -sf -X PUT $control/scores/a -H 'Content-Type: text/plain' -d "$1"; }
property() { systemctl show --value --property "$1" stentor; }
says_server() { curl -si $public/scores/a | grep -q '^Server: Stentor'; }

say 'systemd runs'
systemctl --version | head -n 1

# Images of containers have this, so that nothing is started in them.
rm -f /usr/sbin/policy-rc.d
# Where there is no network, whatever waits for it would do so for two minutes.
for waits in /lib/systemd/system/*-wait-online.service; do
    systemctl mask --quiet --runtime "${waits##*/}"
done

say 'installed: it runs, and whoever stops it can start it'
dpkg -i /first.deb
test "$(property ActiveState)" = active
systemctl stop stentor
systemd-analyze verify stentor.service
systemctl start stentor
# It is ready when `start` returns: no second try.
put 1
test "$(curl -sf $public/scores/a)" = 1
systemctl status --no-pager stentor
test "$(property Type)" = notify
test "$(property ActiveState)" = active
fails sh -c 'journalctl --no-pager -u stentor | grep WARN'
test "$(stat -c %U "/proc/$(property MainPID)")" != root

say 'it serves files, though its sandbox forbids openat2'
cp $configuration /without-files.toml
mkdir -p /srv/site/.well-known/acme-challenge
echo served > /srv/site/.well-known/acme-challenge/x
printf '\n[[static]]\nroot = "/srv/site"\n' >> $configuration
systemctl restart stentor
test "$(curl -sf $public/.well-known/acme-challenge/x)" = served
journalctl --no-pager -u stentor | grep 'openat2 is not available'
cp /without-files.toml $configuration
systemctl restart stentor
put 1

say 'it could do little harm'
systemd-analyze security --no-pager --threshold=20 stentor > /exposure
tail -n 1 /exposure

say 'a reload counts, and keeps the process and the values'
first=$(property MainPID)
says_server
sed -i '1i server_header = false' $configuration
systemctl reload stentor
within fails says_server
test "$(curl -sf $public/scores/a)" = 1
test "$(property MainPID)" = "$first"

say 'a configuration that is refused is no reload, and no start'
cp $configuration /good.toml
echo 'wrokers = 3' >> $configuration
fails systemctl reload stentor
test "$(property ActiveState)" = active
test "$(property MainPID)" = "$first"
test "$(curl -sf $public/scores/a)" = 1
fails systemctl restart stentor
test "$(property ExecMainStatus)" = 2
test "$(property NRestarts)" = 0
journalctl --no-pager -u stentor | grep 'unknown key'
cp /good.toml $configuration
systemctl start stentor

say 'restarted under requests: an answer is whole, or there is no connection'
put 1
stentor sub /scores/a > /heard &
sub=$!
within grep -qx 1 /heard
asks() {
    while test ! -e /enough; do
        status=0
        curl -s -o /dev/null -w '%{http_code} %{size_download} ' $public/scores/a || status=$?
        echo "curl $status"
    done
}
asks > /answers &
asks=$!
for value in 2 3 4; do
    begin=$(date +%s%N)
    systemctl restart stentor
    put $value
    echo " after $((($(date +%s%N) - begin) / 1000000)) ms"
    within grep -qx $value /heard
done
touch /enough
wait $asks
kill $sub
sort /answers | uniq -c
grep -q '^200 1 curl 0$' /answers
fails grep -vE '^(200 1 curl 0|404 [0-9]+ curl 0|000 0 curl 7)$' /answers

say 'killed, it comes back'
kill -KILL "$(property MainPID)"
within put 5

say 'an upgrade restarts it once'
first=$(property MainPID)
dpkg -i /later.deb
test "$(property ActiveState)" = active
test "$(property MainPID)" != "$first"

say 'stopped'
systemctl stop stentor
test "$(property Result)" = success
test "$(property ExecMainStatus)" = 0
systemctl start stentor
touch /var/lib/stentor/kept
dpkg -r stentor
test "$(property ActiveState)" = inactive
test -e /var/lib/stentor/kept
dpkg -P stentor
sh /gone.sh
say 'all of it was good'

# Stops, restarts, upgrades and removes a package under systemd, each after 0, 1 and 2 upgrades of
# the running server, with 200 readers and a publisher; then reloads and upgrades it under 1,000
# readers. systemd runs this as a service in a root that root.sh has made. Each case prints a line.
set -eu
. "$(dirname "$0")/within.sh"
configuration=/etc/stentor/stentor.toml
say() { echo "== $*"; }
property() { systemctl show --value --property "$1" stentor; }
ms() { echo $(($(date +%s%N) / 1000000)); }

# Images of containers have this, so that nothing is started in them.
rm -f /usr/sbin/policy-rc.d
for waits in /lib/systemd/system/*-wait-online.service; do
    systemctl mask --quiet --runtime "${waits##*/}"
done

# Begins to read and to publish, in the background. Each run has a topic without a history.
traffic() {
    curl -sf -o /dev/null -X DELETE http://127.0.0.1:8081/n || true
    rm -rf /traffic
    mkdir /traffic
    /usr/bin/python3 /traffic.py "$1" "$2" /traffic > /traffic/said 2>&1 &
    traffic=$!
    within test -e /traffic/ready || within test -e /traffic/ready
}

# Ends that, and prints a case with what came of it.
seen() {
    sleep 1
    touch /traffic/stop
    status=0
    wait $traffic || status=$?
    state=$(property ActiveState)
    echo "$1: $2 ms, $state; $(cat /traffic/said)"
    test $status -eq 0
    test "$state" != failed
}

dropped_none() { grep -q ' 0 dropped,' /traffic/said; }

# Upgrades the running server so many times.
live() {
    for _ in $(seq "$1"); do
        stentor upgrade --process "$(property MainPID)" > /upgraded
    done
}

# Whether the last stop drained: it took some time, for readers are let go over three seconds, and
# not more than `drain`, which is eight.
drained() {
    journalctl --sync
    journalctl --no-pager -u stentor -o short-unix > /journal
    took=$(awk '/stopping: answering/ { begin = $1; end = 0 } / stopped$/ { end = $1 }
        END { printf "%d", (end - begin) * 1000 }' /journal)
    echo " drained in $took ms"
    test "$took" -ge 1500 && test "$took" -le 8500
}

configure() {
    cat >> $configuration <<EOF
drain = "8s"
store.path = "/var/lib/stentor"
[streams]
drain_spread = "3s"
[[topics]]
match = "/**"
history = 10000
EOF
}

say 'systemd runs'
systemctl --version | head -n 1
dpkg -i /first.deb > /dev/null
systemctl stop stentor
configure
systemctl start stentor

for upgrades in 0 1 2; do
    say "after $upgrades upgrades of the running server"
    traffic 200 10
    live $upgrades
    begin=$(ms)
    systemctl restart stentor
    took=$(($(ms) - begin))
    seen restart $took
    drained
    test "$(property Result)" = success

    traffic 200 10
    live $upgrades
    begin=$(ms)
    systemctl stop stentor
    took=$(($(ms) - begin))
    test "$(property Result) $(property ExecMainStatus)" = 'success 0'
    test "$(property ActiveState)" = inactive
    systemctl start stentor
    seen stop $took
    drained

    traffic 200 10
    live $upgrades
    first=$(property MainPID)
    begin=$(ms)
    dpkg -i /later.deb > /dev/null
    took=$(($(ms) - begin))
    test "$(property MainPID)" != "$first"
    test ! -e "/proc/$first"
    seen 'package upgrade' $took
    dropped_none
    test "$(property NRestarts)" = 0

    traffic 200 10
    live $upgrades
    begin=$(ms)
    dpkg -r stentor > /dev/null
    took=$(($(ms) - begin))
    touch /traffic/gone
    seen removal $took
    drained
    test "$(property ActiveState)" = inactive
    dpkg -i /first.deb > /dev/null
    within curl -sf -o /dev/null http://127.0.0.1:8081/-/readyz
done

say '1,000 readers: reload, upgrade, package upgrade and restart'
traffic 1000 4
begin=$(ms)
systemctl reload stentor
seen reload $(($(ms) - begin))
dropped_none
traffic 1000 4
begin=$(ms)
live 1
seen upgrade $(($(ms) - begin))
cat /upgraded
dropped_none
traffic 1000 4
begin=$(ms)
dpkg -i /later.deb > /dev/null
seen 'package upgrade' $(($(ms) - begin))
dropped_none
traffic 1000 4
begin=$(ms)
systemctl restart stentor
seen restart $(($(ms) - begin))

traffic 200 10
first=$(property MainPID)
cp $configuration /good.toml
# The package is refused for the configuration, and puts it right.
refused() {
    begin=$(ms)
    if dpkg -i "$1" > /refused 2>&1; then exit 1; fi
    took=$(($(ms) - begin))
    grep 'the version before goes on' /refused
    test "$(property MainPID)" = "$first"
    cp /good.toml $configuration
    dpkg --configure stentor > /dev/null
    test "$(property MainPID)" != "$first"
    first=$(property MainPID)
}

say 'a configuration that is refused'
echo '[wrokers]' >> $configuration
if systemctl reload stentor; then exit 1; fi
refused /first.deb
echo "refused: $took ms"

say 'a configuration that only the next process can refuse'
sed -i '1i log.access = "/absent/access.log"' $configuration
refused /later.deb
seen 'package upgrade, refused twice and then configured' $took
dropped_none

say 'where no upgrade is possible it is restarted'
traffic 200 10
first=$(property MainPID)
sed -i 's|^store.path = .*|store.path = "/var/lib/stentor/other"|' $configuration
begin=$(ms)
dpkg -i /first.deb > /refused 2>&1
took=$(($(ms) - begin))
grep 'store.path is another' /refused
touch /traffic/gone /traffic/stop
wait $traffic || true
test "$(property MainPID)" != "$first"
test "$(property ActiveState)" = active
echo "package upgrade by a restart: $took ms, $(property ActiveState)"
cp /good.toml $configuration

say 'a unit of Type=simple'
dropin=/etc/systemd/system/stentor.service.d
mkdir -p $dropin
printf '[Service]\nType=simple\nNotifyAccess=none\n' > $dropin/simple.conf
systemctl daemon-reload
systemctl restart stentor
within curl -sf -o /dev/null http://127.0.0.1:8081/-/readyz
traffic 200 10
first=$(property MainPID)
begin=$(ms)
live 3
test "$(property MainPID)" = "$first"
systemctl reload stentor
seen '3 upgrades and a reload' $(($(ms) - begin))
dropped_none
traffic 200 10
begin=$(ms)
systemctl stop stentor
took=$(($(ms) - begin))
test "$(property Result)" = success
touch /traffic/gone
seen stop $took
drained
say 'all of it was good'

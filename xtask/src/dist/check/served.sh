# Tries a binary as its user would: publishes, reads, follows by streams of all kinds and over TLS,
# upgrades the server under them, kills it, starts it again over its store, and stops it.
# Arguments: a root, an empty directory in it, and the binary in it. Runs as root, with a network of
# its own.
set -eu
. "$(dirname "$0")/within.sh"
root=$1 dir=$2 program=$3
files=$root/$dir
public=http://127.0.0.1:8080 control=http://127.0.0.1:8081 secure=https://localhost:8443
server='' clients=''
ip link set lo up
trap 'kill $server $clients 2> /dev/null || true' EXIT

stentor() { chroot "$root" "$program" "$@"; }
serve() {
    chroot "$root" "$program" serve --data "$dir/store" --listen 127.0.0.1:8080 \
        --listen tls:127.0.0.1:8443 --tls-cert "$dir/cert.pem" --tls-key "$dir/key.pem" &
    server=$!
    within stentor status --ready 2> "$files/ready"
}
ask() { curl -s --cacert "$files/cert.pem" "$@"; }
put() { ask -f -X PUT $control/scores/a -H 'Content-Type: text/plain' -d "$1"; }
# Follows a topic: the name of a file for what comes, and what curl is told.
follow() {
    name=$1
    shift
    ask -N "$@" > "$files/$name" &
    clients="$clients $!"
}
events() { follow "$1" -H 'Accept: text/event-stream' "$2/scores/a"; }
websocket() {
    follow "$1" -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' \
        -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' "$2/scores/a"
}
all_hear() {
    for name in events events-tls websocket websocket-tls; do
        within grep -aq "$1" "$files/$name"
    done
}

stentor --version
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 90 -subj /CN=check \
    -addext subjectAltName=DNS:localhost -keyout "$files/key.pem" -out "$files/cert.pem" \
    2> "$files/openssl"
serve

say 'what is published is read, and nothing is published in public'
put 101:99
test "$(ask $public/scores/a)" = 101:99
test "$(ask $secure/scores/a)" = 101:99
test "$(ask -o "$files/refused" -w '%{http_code}' -X PUT $public/scores/a -d 1)" = 405

say 'event streams and WebSockets, with TLS and without, hear it'
events events $public
events events-tls $secure
websocket websocket $public
websocket websocket-tls $secure
all_hear 101:99
put 103:99
all_hear 103:99

say 'an upgrade drops none of them, nor a long-poll'
etag=$(ask -I $public/scores/a | sed -n 's/^ETag: \(.*\)\r$/\1/p')
follow poll -H "If-None-Match: $etag" -H 'Prefer: wait=50' $public/scores/a
stentor upgrade | tee "$files/upgrade"
grep -q '^upgraded: ' "$files/upgrade"
put 105:99
all_hear 105:99
within grep -q 105:99 "$files/poll"
kill -0 ${clients% *}

say 'killed and started again, the server has its values'
kill -KILL "$server"
wait $clients || true
clients=''
within fails ask -o /dev/null $control
serve
test "$(ask $public/scores/a)" = 105:99
ask -f $control/-/metrics > "$files/metrics"

say 'stopped, it ends with 0, and its store is whole'
kill "$server"
wait "$server"
server=''
stentor store check "$dir/store"
say 'all of it was good'

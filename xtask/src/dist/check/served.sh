# Publishes, reads, listens and stops. Arguments: an empty directory, and how the command is called.
# Runs with a network of its own.
set -eu
. "$(dirname "$0")/within.sh"
dir=$1
shift
ip link set lo up
public=http://127.0.0.1:8080 control=http://127.0.0.1:8081
"$@" --version
"$@" serve &
server=$!
trap 'kill $server' EXIT
within curl -sf $control/-/readyz
curl -sf -X PUT $control/scores/lal-bos -H 'Content-Type: text/plain' -d '101:99'
test "$(curl -sf $public/scores/lal-bos)" = 101:99
test "$(curl -s -o "$dir/refused" -w '%{http_code}' -X PUT $public/scores/lal-bos -d 1)" = 405

curl -sN -H 'Accept: text/event-stream' $public/scores/lal-bos > "$dir/events" &
events=$!
within grep -qx 'data: 101:99' "$dir/events"
curl -sf -X PUT $control/scores/lal-bos -H 'Content-Type: text/plain' -d '103:99'
within grep -qx 'data: 103:99' "$dir/events"
curl -sf $control/-/metrics > "$dir/metrics"

trap - EXIT
kill $server
wait $server
wait $events || true
echo 'published, read, heard and stopped'

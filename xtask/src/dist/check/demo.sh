# How long it takes from what was downloaded to the demo's first answers.
# Arguments: a root, the directory in it where the download lies, a line that installs it, the
# command that then is there, and how many seconds all of it may take.
# Runs as root, with a network of its own.
set -eu
. "$(dirname "$0")/within.sh"
root=$1 dir=$2 line=$3 program=$4 seconds=$5
ip link set lo up
begin=$(date +%s%N)
say "$line"
chroot "$root" sh -c "cd '$dir' && $line" < /dev/null
chroot "$root" sh -c "cd '$dir' && exec '$program' demo" > /dev/null &
demo=$!
trap 'kill $demo' EXIT
within curl -sf -o /dev/null http://127.0.0.1:8080/quotes/aapl
curl -sf http://127.0.0.1:8080/demo/ | grep -q '<title>'
ms=$((($(date +%s%N) - begin) / 1000000))
trap - EXIT
kill $demo
wait $demo
say "installed, and the page is live: $ms ms"
test $ms -le "${seconds}000"

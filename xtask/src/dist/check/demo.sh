# How long it takes from what was downloaded to the demo's first answers.
# Arguments: a line that installs, the command that then is there, and how many seconds it may take.
# Runs with a network of its own.
set -eu
. "$(dirname "$0")/within.sh"
ip link set lo up
begin=$(date +%s%N)
eval "$1"
"$2" demo &
demo=$!
trap 'kill $demo' EXIT
within curl -sf -o /dev/null http://127.0.0.1:8080/quotes/aapl
curl -sf http://127.0.0.1:8080/demo/ | grep -q '<title>'
ms=$((($(date +%s%N) - begin) / 1000000))
trap - EXIT
kill $demo
wait $demo
echo "installed, and the demo answers: $ms ms"
test $ms -le "${3}000"

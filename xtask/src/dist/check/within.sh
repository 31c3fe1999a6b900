# For the other scripts: say what comes next, and whether a command fails, or succeeds within thirty
# seconds.
say() { echo "== $*"; }
fails() { if "$@"; then return 1; fi; }
within() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        test $tries -lt 300 || return 1
        sleep 0.1
    done
}

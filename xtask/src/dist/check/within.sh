# For the other scripts: whether a command succeeds within ten seconds.
within() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        test $tries -lt 100 || return 1
        sleep 0.1
    done
}

# Loads an image as the README says and runs it: as another user, with a root that cannot be
# written, without any right, with the health check of the compose file, and over a store in a
# volume.
# Arguments: the directory where the image lies, the line that loads it, its name, an empty
# directory. Runs as root, with mounts and a network of its own.
set -eu
. "$(dirname "$0")/within.sh"
downloads=$1 line=$2 image=$3 dir=$4
compose=$(dirname "$0")/../../../../packaging/compose.yaml
control=http://127.0.0.1:8081
ip link set lo up
mount -t tmpfs none "$dir"
export CONTAINERS_STORAGE_CONF="$dir/storage.conf" CONTAINERS_CONF="$dir/containers.conf"
cat > "$CONTAINERS_STORAGE_CONF" << END
[storage]
driver = "vfs"
graphroot = "$dir/storage"
runroot = "$dir/run"
END
# Limits of its own may be more than this process may give; and crun knows either of the two kinds
# of groups, but not both at once.
cat > "$CONTAINERS_CONF" << END
[engine]
cgroup_manager = "cgroupfs"
runtime = "crun"
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]
END
umount /sys/fs/cgroup/unified 2> "$dir/umount" || true

say "$line"
begin=$(date +%s%N)
(cd "$downloads" && eval "$line")
health=$(sed -n 's/^ *test: \["CMD", /[/p' "$compose")
say "its health check: $health"
mkdir "$dir/store"
chown 12345:12345 "$dir/store"
# Where emulated.sh runs this, crun may not make devices: in a user namespace it binds the host's.
run() {
    podman run --read-only --read-only-tmpfs=false --cap-drop all \
        --security-opt no-new-privileges --user 12345:12345 --uidmap 0:0:65536 \
        --volume "$dir/store:/data" "$@"
}
is_healthy_or_gone() {
    podman healthcheck run "$(cat "$dir/id")" || fails kill -0 $container
}
start() {
    rm -f "$dir/id"
    run --network host --cidfile "$dir/id" --health-cmd "$health" --health-interval disable \
        "$image" serve --data /data &
    container=$!
    trap 'podman rm --force --time 1 "$(cat "$dir/id")"' EXIT
    within test -s "$dir/id"
    within is_healthy_or_gone
    kill -0 $container
}
stop() {
    trap - EXIT
    podman stop "$(cat "$dir/id")"
    wait $container
}
start
say "from the image to a healthy server: $((($(date +%s%N) - begin) / 1000000)) ms"
say 'it is another user, has no right and may gain none'
status=/proc/$(podman inspect -f '{{.State.Pid}}' "$(cat "$dir/id")")/status
for line in 'Uid:[[:space:]]*12345' 'CapEff:[[:space:]]*0*$' 'NoNewPrivs:[[:space:]]*1'; do
    grep "^$line" "$status"
done
curl -sf -X PUT $control/scores/a -H 'Content-Type: text/plain' -d 101:99
stop
say 'stopped, it has ended with 0; its store is whole, and of that user'
run --rm --network none "$image" store check /data
test -z "$(find "$dir/store" ! -uid 12345)"
say 'run again, it has its values'
start
test "$(curl -sf http://127.0.0.1:8080/scores/a)" = 101:99
stop
say 'all of it was good'

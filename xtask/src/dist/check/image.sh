# Loads an image and runs it, as nobody and with a root that cannot be written.
# Arguments: the archive, its version, and an empty directory. Runs as root, with mounts and a
# network of its own.
set -eu
. "$(dirname "$0")/within.sh"
archive=$1 version=$2 dir=$3
ip link set lo up
mount -t tmpfs none "$dir"
storage="--root $dir/storage --runroot $dir/run --storage-driver vfs --cgroup-manager cgroupfs"
podman $storage load --quiet --input "$archive"
# Limits of its own may be more than this process may give; and crun knows either of the two kinds
# of groups, but not both at once.
umount /sys/fs/cgroup/unified 2> "$dir/umount" || true
podman $storage run --rm --read-only --cap-drop all --network host \
    --cgroups disabled --ulimit nofile=1000:1000 --ulimit nproc=1000:1000 \
    --cidfile "$dir/id" "stentor:$version" &
container=$!
trap 'kill $container' EXIT
within curl -sf http://127.0.0.1:8081/-/readyz
trap - EXIT
podman $storage stop "$(cat "$dir/id")"
wait $container

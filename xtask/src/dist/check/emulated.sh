# Runs a command where the kernel gives programs of another architecture to qemu. Only that command
# notices: its user namespace has a table of its own of such programs, as of Linux 6.7. On an older
# kernel the host's table counts, which Debian's binfmt-support fills.
# Arguments: an architecture as qemu calls it, an empty directory, a command.
# Runs as root, with mounts of its own; the command has a network of its own, too.
set -eu
emulator=/usr/bin/qemu-$1-static dir=$2
shift 2
# For crun, see image.sh: inside of the namespace it could not be unmounted.
umount /sys/fs/cgroup/unified 2> "$dir/umount" || true
mkfifo "$dir/mapped"
unshare --user --mount --net sh -c 'read -r _ < "$0"; exec "$@"' "$dir/mapped" \
    sh "$(dirname "$0")/binfmt.sh" "$emulator" "$@" &
inside=$!
trap 'kill $inside' EXIT
until test "$(readlink /proc/$inside/ns/user)" != "$(readlink /proc/self/ns/user)"; do
    sleep 0.01
done
# All users of this host are there, as themselves.
for map in uid_map gid_map; do echo '0 0 4294967295' > /proc/$inside/$map; done
echo > "$dir/mapped"
trap - EXIT
wait $inside

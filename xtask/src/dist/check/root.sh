# Makes a copy of a root that vanishes, and runs a command that finds it in $dir/root.
# Arguments: the root, an empty directory, a command. Runs as root, with mounts of its own.
set -eu
lower=$1 dir=$2
shift 2
mount -t tmpfs none "$dir"
mkdir "$dir/upper" "$dir/work" "$dir/root"
# In a user namespace an overlay can keep its notes in attributes of users only.
users=$(test "$(readlink /proc/self/ns/user)" = "$(readlink /proc/1/ns/user)" || echo ,userxattr)
mount -t overlay -o "lowerdir=$lower,upperdir=$dir/upper,workdir=$dir/work$users" none "$dir/root"
# systemd brings these itself to the root that it boots, a copy of this host's.
if test "$lower" != /; then
    for name in dev proc; do mount --rbind /$name "$dir/root/$name"; done
fi
exec "$@"

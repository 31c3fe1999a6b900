# Unpacks a tarball in a root, as the README says, to the demo's page; then tries its binary.
# Arguments: the tarball, its root, the line that unpacks it, and how many seconds it may take from
# there to the page. Runs as root, with a network of its own.
set -eu
. "$(dirname "$0")/within.sh"
here=$(dirname "$0")
tarball=$1 root=$2 line=$3 seconds=$4
mkdir "$root/download" "$root/files"
cp "$tarball" "$root/download/"
grep PRETTY_NAME "$root/etc/os-release"
program=/download/$(basename "$tarball" .tar.gz)/stentor
sh "$here/demo.sh" "$root" /download "$line" "$program" "$seconds"
sh "$here/served.sh" "$root" /files "$program"

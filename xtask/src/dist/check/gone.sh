# Nothing is left behind of a package that was purged.
set -eu
find /etc /usr/bin /usr/lib /usr/share /var/lib /var/log /run -xdev -name '*stentor*' > /left
cat /left
test ! -s /left

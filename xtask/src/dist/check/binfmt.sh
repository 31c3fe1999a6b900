# Makes the kernel give programs for 64-bit ARM to an emulator, and runs a command.
# Arguments: the emulator, the command. Runs in a user namespace that emulated.sh has made.
set -eu
emulator=$1
shift
table=/proc/sys/fs/binfmt_misc
# An ELF file: 64 bits, little-endian, executable (or shared), for the machine 183.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
if mount -t binfmt_misc none $table; then
    # F opens the emulator now, so that it is there in every root.
    printf '%s' ":emulated:M::$magic:$mask:$emulator:F" > $table/register
fi
exec "$@"

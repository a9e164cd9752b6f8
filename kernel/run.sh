#!/bin/sh
# Boots a kernel image under QEMU and turns its verdict into an exit status:
# 0 the kernel was content, 1 it was not or died, 124 it did not end in time.
#
#   run.sh IMAGE [KERNEL COMMAND LINE...]
#
# QEMU, QEMU_ACCEL, MINFLT_CPUS, MINFLT_RAM and MINFLT_TIMEOUT (seconds) in the environment override
# the defaults. KVM is not needed: TCG is the default accelerator.
set -u

image=$1
shift

# A thread of the host for each CPU, so that they run at once.
cpus=${MINFLT_CPUS:-1}
accel=tcg
if [ "$cpus" != 1 ]; then
    accel=tcg,thread=multi
fi
accel=${QEMU_ACCEL:-$accel}

timeout --foreground "${MINFLT_TIMEOUT:-120}" \
    "${QEMU:-qemu-system-x86_64}" \
    -machine q35 -accel "$accel" -m "${MINFLT_RAM:-256M}" -smp "$cpus" \
    -nodefaults -display none -serial stdio -no-reboot \
    -device isa-debug-exit,iobase=0xf4,iosize=0x04 \
    -kernel "$image" -append "$*" </dev/null
status=$?

# QEMU ends with 2 * v + 1 for the value v the kernel wrote, see src/arch/exit.rs.
case $status in
33) exit 0 ;;
35) echo "run.sh: the kernel reports failure" >&2 ;;
37) echo "run.sh: the kernel panicked" >&2 ;;
124)
    echo "run.sh: no end after ${MINFLT_TIMEOUT:-120} s" >&2
    exit 124
    ;;
0) echo "run.sh: the machine reset or was switched off" >&2 ;;
*) echo "run.sh: QEMU ended with status $status" >&2 ;;
esac
exit 1

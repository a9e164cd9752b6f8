//! `boot`: what cannot be booted, and a boot that is interrupted.

use crate::row::{Given, Row, usage};

/// A program of one segment, linked at a fixed address, as far as headers go.
const PROGRAM: Given = Given::Bytes(
    b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0\
      \0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0\
      \x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
);
/// The same, of which the segment names a dynamic linker.
const DYNAMIC: Given = Given::Bytes(
    b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0\
      \0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0\
      \x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
);
const IMAGE: Given = Given::Bytes(b"an image");
const FILES: &[(&str, Given)] = &[("a", PROGRAM), ("image", IMAGE), ("tmp", Given::Folder)];
/// A QEMU that hangs, and leaves a file if it is not killed within a second.
const HANGS: Given = Given::Bytes(b"#!/bin/sh\necho yes >started\nsleep 1\necho yes >left\n");
/// One that fails as QEMU does, and one that ends like a machine without a record.
const FAILS: Given = Given::Bytes(b"#!/bin/sh\necho 'qemu: could not load kernel' >&2\nexit 1\n");
const ENDS: Given = Given::Bytes(b"#!/bin/sh\nexit 0\n");

const fn boot(name: &'static str, line: &'static str, says: &'static [&'static str]) -> Row {
    usage(name, line, says).given(FILES)
}

pub(crate) const ROWS: &[Row] = &[
    boot(
        "boot of nothing",
        "minflt boot",
        &["name a static program after --", "minflt boot -- ./hello"],
    ),
    boot(
        "boot of a program that is not there",
        "minflt boot -- ./nope",
        &["./nope: No such file", "give a static x86-64 program"],
    ),
    boot(
        "boot with a second program",
        "minflt boot --append rdinit=/b -- ./a",
        &["--append", "other than rdinit= and --"],
    ),
    boot(
        "boot of an image with checks",
        "minflt boot --checks --kernel ./image -- ./a",
        &["--checks", "use --kernel minflt"],
    ),
    boot(
        "boot of a script",
        "minflt boot -- image",
        &["no 64-bit ELF program", "give a static x86-64 program"],
    ),
    usage(
        "boot of a dynamic program",
        "minflt boot -- ./a",
        &["linked dynamically", "link it with -static"],
    )
    .given(&[("a", DYNAMIC)]),
    boot(
        "boot with a file that is not there",
        "minflt boot --add nope -- ./a",
        &["--add nope: cannot read it", "give a file"],
    ),
    boot(
        "boot with a file without a name",
        "minflt boot --add .. -- ./a",
        &["--add ..: it has no name", "FILE=/PATH"],
    ),
    boot(
        "boot of a root that is not there",
        "minflt boot --root nope -- sh",
        &["nope has no program sh", "name a file below it"],
    ),
    boot(
        "boot with an argument that no command line holds",
        "minflt boot -- ./a 'x\"y'",
        &["cannot stand in a kernel's command line", "printable ASCII"],
    ),
    boot(
        "boot of a kernel that is not there",
        "minflt boot --kernel minfl -- ./a",
        &["--kernel: cannot read minfl", "give minflt, linux=VMLINUZ"],
    ),
    boot(
        "boot of a Linux that nothing names",
        "MINFLT_LINUX= minflt boot --kernel linux -- ./a",
        &["--kernel linux", "linux=VMLINUZ", "MINFLT_LINUX"],
    ),
    boot(
        "boot of two Linuxes",
        "MINFLT_LINUX=image:a minflt boot --kernel linux -- ./a",
        &["MINFLT_LINUX names 2 kernels", "name one by linux=VMLINUZ"],
    ),
    boot(
        "boot of a Linux in an era",
        "minflt boot --kernel linux=image --era best -- ./a",
        &["a Linux kernel has no eras", "--kernel minflt"],
    ),
    boot(
        "boot in no era",
        "minflt boot --era linux-6.51 -- ./a",
        &["unknown era `linux-6.51`", "eras are linux-2.6.10"],
    ),
    boot(
        "boot in two eras",
        "minflt boot --era linux-4.13,linux-6.15 -- ./a",
        &["--era linux-4.13,linux-6.15", "boots in one era"],
    ),
    boot(
        "boot with too many CPUs",
        "minflt boot --cpus 65 -- ./a",
        &["--cpus 65", "at most 64"],
    ),
    boot(
        "boot with more RAM than is used",
        "minflt boot --mem 16G -- ./a",
        &["--mem 16G", "at most 8G"],
    ),
    boot(
        "boot with hardly any RAM",
        "minflt boot --mem 1M -- ./a",
        &["--mem 1M", "at least 16M"],
    ),
    boot(
        "boot on no accelerator",
        "minflt boot --accel tgc -- ./a",
        &[
            "unknown accelerator `tgc`",
            "tcg, kvm",
            "did you mean `tcg`?",
        ],
    ),
    boot(
        "boot that counts under KVM",
        "minflt boot --accel kvm --icount -- ./a",
        &["--icount", "use --accel tcg"],
    ),
    boot(
        "boot without time",
        "minflt boot --timeout 0 -- ./a",
        &["--timeout", "such as 60s or 5m"],
    ),
    boot(
        "boot without QEMU",
        "QEMU=./none minflt boot --kernel image -- ./a",
        &["./none is not there", "apt install qemu-system-x86"],
    ),
    boot(
        "boot that QEMU refuses",
        "chmod +x qemu; QEMU=./qemu TMPDIR=$PWD/tmp minflt boot --kernel image -- ./a",
        &["boot: qemu: could not load kernel"],
    )
    .given(&[
        ("a", PROGRAM),
        ("image", IMAGE),
        ("tmp", Given::Folder),
        ("qemu", FAILS),
    ])
    .status(1),
    boot(
        "boot that ends without a record",
        "chmod +x qemu; QEMU=./qemu TMPDIR=$PWD/tmp minflt boot --kernel image -- ./a",
        &["the machine ended (QEMU: 0) before /a did"],
    )
    .given(&[
        ("a", PROGRAM),
        ("image", IMAGE),
        ("tmp", Given::Folder),
        ("qemu", ENDS),
    ])
    .status(1),
    boot(
        "boot that is interrupted leaves nothing",
        "chmod +x qemu; QEMU=./qemu TMPDIR=$PWD/tmp minflt boot --kernel image -- ./a & \
         until [ -s started ]; do :; done; kill -TERM $!; wait $!; status=$?; sleep 1.2; \
         exit $status",
        &["interrupted; what it had started has ended"],
    )
    .given(&[
        ("a", PROGRAM),
        ("image", IMAGE),
        ("tmp", Given::Folder),
        ("qemu", HANGS),
    ])
    .leaves(&["started"])
    .status(130),
    usage(
        "a kernel's workload on the host",
        "minflt bench kernel-ops --on host",
        &["`host` does not run this", "targets are kernel, linux-vm"],
    ),
    usage(
        "another workload on the kernel",
        "minflt bench pft --on kernel",
        &[
            "--on kernel: runs kernel-ops and kernel-rates only",
            "use host",
        ],
    ),
    usage(
        "a kernel's workload on no Linux",
        "MINFLT_LINUX= minflt bench kernel-rates --on linux-vm",
        &["skipped: linux-vm: name a Linux kernel", "MINFLT_LINUX"],
    ),
    usage(
        "a kernel's workload with an option of others",
        "minflt bench kernel-ops --size 4M",
        &[
            "--size: kernel-ops does not take it",
            "its options are --on",
        ],
    ),
    usage(
        "threads where nothing has some",
        "minflt bench kernel-ops --threads 2",
        &[
            "--threads: kernel-ops does not take it",
            "its options are --on",
        ],
    ),
    usage(
        "docs of another workload",
        "minflt bench pft --docs",
        &[
            "--docs: only kernel-ops",
            "kernel-rates write into the docs",
        ],
    ),
];

//! The calls that `fuzz` makes, and what their arguments are about.

/// Numbers of calls.
pub(crate) mod nr {
    pub(crate) const READ: u64 = 0;
    pub(crate) const WRITE: u64 = 1;
    pub(crate) const OPEN: u64 = 2;
    pub(crate) const CLOSE: u64 = 3;
    pub(crate) const NANOSLEEP: u64 = 35;
    pub(crate) const CLONE: u64 = 56;
    pub(crate) const FORK: u64 = 57;
    pub(crate) const VFORK: u64 = 58;
    pub(crate) const EXIT: u64 = 60;
    pub(crate) const WAIT4: u64 = 61;
    pub(crate) const UNAME: u64 = 63;
    pub(crate) const FTRUNCATE: u64 = 77;
    pub(crate) const SHMGET: u64 = 29;
    pub(crate) const SHMCTL: u64 = 31;
    pub(crate) const SHMDT: u64 = 67;
    pub(crate) const FUTEX: u64 = 202;
    pub(crate) const SETAFFINITY: u64 = 203;
    pub(crate) const GETAFFINITY: u64 = 204;
    pub(crate) const CLOCK_NANOSLEEP: u64 = 230;
    pub(crate) const EXIT_GROUP: u64 = 231;
    pub(crate) const OPENAT: u64 = 257;
    pub(crate) const FALLOCATE: u64 = 285;
    pub(crate) const PRLIMIT: u64 = 302;
    pub(crate) const MEMFD: u64 = 319;
}

/// What an argument is about.
#[derive(Clone, Copy)]
pub(crate) enum Arg {
    /// An address.
    Addr,
    /// Where a number of 4 bytes is, a few of them only, so that threads meet.
    Word,
    /// Bytes.
    Len,
    /// An open file.
    File,
    /// A `struct timespec` of a short time.
    Time,
    /// Where a path is.
    Path,
    /// One of these.
    One(&'static [u64]),
    /// The same, and nothing else.
    Only(&'static [u64]),
    /// Some of these bits.
    Bits(&'static [u64]),
    /// A small number.
    Small,
    /// Anything.
    Any,
}

/// A call.
pub(crate) struct Call {
    pub(crate) number: u64,
    /// How often it is made, of all weights.
    pub(crate) weight: u64,
    pub(crate) args: &'static [Arg],
}

const fn row(number: u64, weight: u64, args: &'static [Arg]) -> Call {
    Call {
        number,
        weight,
        args,
    }
}

const PROT: Arg = Arg::One(&[0, 1, 2, 3, 3, 3, 5, 7, 8]);
pub(crate) const KEYS: &[u64] = &[1, 2, 3, 4];
const MAP: Arg = Arg::One(&[
    0x22, 0x22, 0x22, 0x21, 0x32, 0x31, 0x02, 0x01, 0x12, 0x11, 0x03, 0x8022, 0x8021, 0x1_8022,
    0x4022, 0x10_0022, 0x122, 0x2022, 0x4_0022, 0x4_0021, 0x4_0001, 0x8001, 0x8002,
]);
const CLONES: Arg = Arg::One(&[
    17, 17, 0x4111, 0x3d_0f00, 0x35_0f00, 0x1_0f00, 0x1_0f00, 0x121_0f00, 0x120_0011, 0x100,
    0x1_0000, 0x8_0011,
]);
const PIDS: Arg = Arg::One(&[0, 0, 1, 2, 3, 4, 5, 6, 0xffff_ffff, 0x7fff_ffff]);
const FUTEX: Arg = Arg::One(&[
    0, 128, 128, 1, 129, 3, 131, 4, 132, 9, 137, 10, 138, 5, 6, 2, 11, 0x100, 0x189,
]);

/// All calls that the kernel has, and how often they are made.
pub(crate) const TABLE: &[Call] = &[
    row(nr::READ, 6, &[Arg::File, Arg::Addr, Arg::Len]),
    row(nr::WRITE, 6, &[Arg::File, Arg::Addr, Arg::Len]),
    row(
        nr::OPEN,
        3,
        &[Arg::Path, Arg::Bits(&[1, 2, 0o200_000]), Arg::Any],
    ),
    row(nr::CLOSE, 4, &[Arg::File]),
    // Names and what they lead to, as far as nothing is made that outlasts the process.
    row(4, 1, &[Arg::Path, Arg::Addr]),
    row(6, 1, &[Arg::Path, Arg::Addr]),
    row(5, 1, &[Arg::File, Arg::Addr]),
    row(
        332,
        1,
        &[
            Arg::File,
            Arg::Path,
            Arg::Bits(&[0x100, 0x1000]),
            Arg::Any,
            Arg::Addr,
        ],
    ),
    row(79, 1, &[Arg::Addr, Arg::Len]),
    row(80, 1, &[Arg::Path]),
    row(89, 1, &[Arg::Path, Arg::Addr, Arg::Len]),
    row(217, 2, &[Arg::File, Arg::Addr, Arg::Len]),
    row(21, 1, &[Arg::Path, Arg::Small]),
    // Pipes, and several files at once.
    row(22, 2, &[Arg::Addr]),
    row(293, 1, &[Arg::Addr, Arg::Bits(&[0o4000, 0o2_000_000])]),
    row(33, 2, &[Arg::File, Arg::File]),
    row(
        72,
        2,
        &[Arg::File, Arg::One(&[0, 1, 2, 3, 4, 1030, 5]), Arg::Small],
    ),
    row(19, 2, &[Arg::File, Arg::Addr, Arg::Small]),
    row(20, 2, &[Arg::File, Arg::Addr, Arg::Small]),
    row(40, 2, &[Arg::File, Arg::File, Arg::Addr, Arg::Len]),
    row(
        16,
        1,
        &[
            Arg::File,
            Arg::One(&[0x5401, 0x5413, 0x541b, 0x540f]),
            Arg::Addr,
        ],
    ),
    row(7, 1, &[Arg::Addr, Arg::Small, Arg::One(&[0, 1, 5])]),
    row(
        23,
        1,
        &[Arg::Small, Arg::Addr, Arg::Addr, Arg::Addr, Arg::Addr],
    ),
    row(
        436,
        1,
        &[
            Arg::One(&[3, 8, 30]),
            Arg::One(&[10, 40, 2000]),
            Arg::One(&[0, 4]),
        ],
    ),
    // Signals, but none to others.
    row(
        13,
        2,
        &[
            Arg::One(&[2, 10, 11, 14, 17, 34, 9, 65]),
            Arg::Addr,
            Arg::Addr,
            Arg::Only(&[8]),
        ],
    ),
    row(
        14,
        2,
        &[
            Arg::One(&[0, 1, 2, 3]),
            Arg::Addr,
            Arg::Addr,
            Arg::Only(&[8]),
        ],
    ),
    row(15, 1, &[]),
    row(127, 1, &[Arg::Addr, Arg::Small]),
    row(128, 1, &[Arg::Addr, Arg::Addr, Arg::Time, Arg::Only(&[8])]),
    row(131, 1, &[Arg::Addr, Arg::Addr]),
    row(37, 1, &[Arg::One(&[0, 1])]),
    row(38, 1, &[Arg::One(&[0, 0, 1]), Arg::Addr, Arg::Addr]),
    // Processes.
    row(59, 1, &[Arg::Path, Arg::Addr, Arg::Addr]),
    row(
        247,
        1,
        &[
            Arg::Small,
            PIDS,
            Arg::Addr,
            Arg::Bits(&[1, 2, 4, 8]),
            Arg::Addr,
        ],
    ),
    row(435, 1, &[Arg::Addr, Arg::One(&[64, 88, 96])]),
    row(109, 1, &[Arg::Only(&[0]), Arg::Small]),
    row(112, 1, &[]),
    row(157, 1, &[Arg::One(&[3, 4, 15, 16]), Arg::Addr]),
    row(318, 1, &[Arg::Addr, Arg::Len, Arg::Small]),
    row(99, 1, &[Arg::Addr]),
    row(8, 3, &[Arg::File, Arg::Len, Arg::One(&[0, 1, 2, 3])]),
    row(
        9,
        30,
        &[Arg::Addr, Arg::Len, PROT, MAP, Arg::File, Arg::Len],
    ),
    row(10, 15, &[Arg::Addr, Arg::Len, PROT]),
    row(11, 12, &[Arg::Addr, Arg::Len]),
    row(12, 4, &[Arg::Addr]),
    row(16, 1, &[Arg::File, Arg::Any, Arg::Addr]),
    row(17, 4, &[Arg::File, Arg::Addr, Arg::Len, Arg::Len]),
    row(18, 6, &[Arg::File, Arg::Addr, Arg::Len, Arg::Len]),
    row(24, 3, &[]),
    row(
        25,
        15,
        &[
            Arg::Addr,
            Arg::Len,
            Arg::Len,
            Arg::Bits(&[1, 2, 4]),
            Arg::Addr,
        ],
    ),
    row(26, 3, &[Arg::Addr, Arg::Len, Arg::Bits(&[1, 2, 4])]),
    row(27, 4, &[Arg::Addr, Arg::Len, Arg::Addr]),
    row(28, 20, &[Arg::Addr, Arg::Len, Arg::Small]),
    row(
        nr::SHMGET,
        3,
        &[
            Arg::Only(KEYS),
            Arg::Only(&[0, 1, 4096, 65536, 1 << 21, 1 << 40, u64::MAX]),
            Arg::Bits(&[0o1000, 0o2000, 0o4000, 0o600, 0o10000]),
        ],
    ),
    row(
        30,
        4,
        &[
            Arg::Small,
            Arg::Addr,
            Arg::Bits(&[0o10000, 0o20000, 0o40000, 0o100_000]),
        ],
    ),
    row(nr::SHMCTL, 1, &[Arg::Small, Arg::One(&[0, 1]), Arg::Addr]),
    row(32, 3, &[Arg::File]),
    row(nr::NANOSLEEP, 3, &[Arg::Time, Arg::Addr]),
    row(39, 1, &[]),
    row(
        nr::CLONE,
        5,
        &[CLONES, Arg::Addr, Arg::Addr, Arg::Addr, Arg::Addr],
    ),
    row(nr::FORK, 3, &[]),
    row(nr::VFORK, 2, &[]),
    row(nr::EXIT, 1, &[Arg::Any]),
    row(
        nr::WAIT4,
        4,
        &[PIDS, Arg::Addr, Arg::One(&[1, 1, 1, 0, 2]), Arg::Addr],
    ),
    row(nr::SHMDT, 2, &[Arg::Addr]),
    row(74, 2, &[Arg::File]),
    row(nr::FTRUNCATE, 6, &[Arg::File, Arg::Len]),
    row(110, 1, &[]),
    row(149, 4, &[Arg::Addr, Arg::Len]),
    row(150, 3, &[Arg::Addr, Arg::Len]),
    row(151, 1, &[Arg::Bits(&[1, 2, 4])]),
    row(152, 1, &[]),
    row(158, 2, &[Arg::One(&[0x1002, 0x1003, 0x1001]), Arg::Addr]),
    row(186, 1, &[]),
    row(
        nr::FUTEX,
        20,
        &[
            Arg::Word,
            FUTEX,
            Arg::One(&[0, 1, 2, 0x7fff_ffff]),
            Arg::Time,
            Arg::Word,
            Arg::One(&[0, 1, 0xffff_ffff]),
        ],
    ),
    row(
        nr::SETAFFINITY,
        5,
        &[PIDS, Arg::One(&[8, 8, 1, 0, 128]), Arg::Word],
    ),
    row(
        nr::GETAFFINITY,
        2,
        &[PIDS, Arg::One(&[8, 8, 1, 0, 128]), Arg::Addr],
    ),
    row(218, 2, &[Arg::Word]),
    row(228, 2, &[Arg::Small, Arg::Addr]),
    row(229, 1, &[Arg::Small, Arg::Addr]),
    row(
        nr::CLOCK_NANOSLEEP,
        3,
        &[
            Arg::One(&[0, 1, 4, 7]),
            Arg::One(&[0, 0, 1]),
            Arg::Time,
            Arg::Addr,
        ],
    ),
    row(nr::EXIT_GROUP, 1, &[Arg::Any]),
    row(
        nr::OPENAT,
        3,
        &[
            Arg::One(&[-100_i64 as u64]),
            Arg::Path,
            Arg::Bits(&[1, 2, 0o200_000]),
        ],
    ),
    row(
        nr::FALLOCATE,
        5,
        &[Arg::File, Arg::One(&[0, 3, 1]), Arg::Len, Arg::Len],
    ),
    row(
        nr::PRLIMIT,
        2,
        &[PIDS, Arg::One(&[3, 8, 9, 0, 16]), Arg::Addr, Arg::Addr],
    ),
    row(273, 3, &[Arg::Addr, Arg::One(&[24, 24, 0])]),
    row(nr::MEMFD, 3, &[Arg::Path, Arg::Bits(&[1, 4])]),
    row(309, 2, &[Arg::Addr, Arg::Addr]),
    row(325, 3, &[Arg::Addr, Arg::Len, Arg::Bits(&[1])]),
    row(
        u64::MAX,
        3,
        &[Arg::Any, Arg::Any, Arg::Any, Arg::Any, Arg::Any, Arg::Any],
    ),
];

//! The options of `ebizzy`.

use crate::options::{Info, Opt, Refused};

/// What the registry says about `ebizzy`.
pub const INFO: Info = Info {
    name: "ebizzy",
    about: "threads map, touch (or copy and search) and unmap records; the posting's run is -mTRp",
    threads: &[2],
    options: &[
        Opt {
            name: "-m",
            value: "",
            default: "on",
            help: "map and unmap records (always on, as there is no malloc)",
        },
        Opt {
            name: "-T",
            value: "",
            default: "off",
            help: "store a word per page instead of copying and searching (required on sim)",
        },
        Opt {
            name: "-R",
            value: "",
            default: "off",
            help: "records of random size, up to a chunk",
        },
        Opt {
            name: "-p",
            value: "",
            default: "off",
            help: "make every other chunk read-only, to prevent VMA merging",
        },
        Opt {
            name: "-P",
            value: "",
            default: "off",
            help: "leave holes between chunks, to prevent VMA merging",
        },
        Opt {
            name: "-n",
            value: "N",
            default: "10",
            help: "chunks",
        },
        Opt {
            name: "-s",
            value: "SIZE",
            default: "512K",
            help: "bytes of a chunk",
        },
        Opt {
            name: "-S",
            value: "SECONDS",
            default: "10",
            help: "duration in seconds (decimals allowed; virtual time on sim)",
        },
        Opt {
            name: "-t",
            value: "N",
            default: "--threads",
            help: "threads (the original: twice the CPUs)",
        },
        Opt {
            name: "-z",
            value: "",
            default: "off",
            help: "linear instead of binary search",
        },
        Opt {
            name: "--records",
            value: "N",
            default: "none",
            help: "records per thread, instead of -S",
        },
        Opt {
            name: "--warm-up",
            value: "N",
            default: "none",
            help: "records per thread before the measured ones",
        },
        Opt {
            name: "--generator",
            value: "lcg|ltp",
            default: "lcg",
            help: "random generator: the working one, or the Linux Test Project's, which always returns 0",
        },
        Opt {
            name: "--seed",
            value: "N",
            default: "the original's",
            help: "seed of the working generator",
        },
    ],
    refused: &[
        Refused {
            name: "-M",
            why: "there is no malloc; records are always mapped, as with -m",
        },
        Refused {
            name: "-l",
            why: "records are always copied word by word; omit it",
        },
        Refused {
            name: "-v",
            why: "--json has all parameters and counts",
        },
    ],
};

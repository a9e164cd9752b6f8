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
            help: "records are mapped and unmapped (there is no malloc, so they always are)",
        },
        Opt {
            name: "-T",
            value: "",
            default: "off",
            help: "store a word in each page instead of copying and searching (sim: needed)",
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
            help: "every other chunk is read-only, so that none merge",
        },
        Opt {
            name: "-P",
            value: "",
            default: "off",
            help: "holes between the chunks, so that none merge",
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
            help: "how long; may have decimals; virtual on sim",
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
            help: "search from the first to the last instead of by halves",
        },
        Opt {
            name: "--records",
            value: "N",
            default: "none",
            help: "so many records by each thread instead of -S",
        },
        Opt {
            name: "--generator",
            value: "lcg|ltp",
            default: "lcg",
            help: "the working generator, or the Linux Test Project's, which always draws 0",
        },
        Opt {
            name: "--seed",
            value: "N",
            default: "the original's",
            help: "other random numbers from the working generator",
        },
    ],
    refused: &[
        Refused {
            name: "-M",
            why: "there is no malloc to leave mapping to; records are always mapped, as with -m",
        },
        Refused {
            name: "-l",
            why: "there is one way to copy, word by word; leave it out",
        },
        Refused {
            name: "-v",
            why: "--json has all parameters and counts",
        },
    ],
};

//! The options of `usemem`.

use crate::options::{Info, Opt, Refused};

const fn flag(name: &'static str, help: &'static str) -> Opt {
    Opt {
        name,
        value: "",
        default: "off",
        help,
    }
}

const fn refused(name: &'static str, why: &'static str) -> Refused {
    Refused { name, why }
}

const CALLS: &str = "workers issue no such call between mmap and munmap";
const MODES: &str = "workers never sleep, wait or synchronise during their work; omit it";

/// What the registry says about `usemem`.
pub const INFO: Info = Info {
    name: "usemem",
    about: "processes store to SIZE bytes each, private or inherited (vm-scalability)",
    threads: &[1],
    options: &[
        Opt {
            name: "-n",
            value: "N",
            default: "--threads",
            help: "processes",
        },
        Opt {
            name: "-t",
            value: "N",
            default: "none",
            help: "threads of one process instead",
        },
        flag(
            "--prealloc",
            "the first process maps the memory, before it forks",
        ),
        flag("-P", "the same as --prealloc"),
        flag("--prefault", "pages are faulted in by the call that maps"),
        flag("-F", "the same as --prefault"),
        flag("-O", "anonymous memory; there is no other"),
        flag("-U", "huge pages (MAP_HUGETLB)"),
        flag("-o", "load each word only"),
        Opt {
            name: "-j",
            value: "SIZE",
            default: "8",
            help: "stride in bytes between accessed words",
        },
        Opt {
            name: "-r",
            value: "N",
            default: "1",
            help: "passes over the memory",
        },
        Opt {
            name: "--size",
            value: "SIZE",
            default: "8M",
            help: "bytes per worker; may also be the last argument, as in the original",
        },
    ],
    refused: &[
        refused("-a", "memory always comes from mmap, never from malloc"),
        refused("-f", "memory is anonymous; file-seq maps files"),
        refused("-w", "memory is always mapped for stores"),
        refused("-u", "each worker's memory is one mapping"),
        refused("-R", "words are used in order"),
        refused("-Z", "contents are verified from the second pass on"),
        refused("-M", CALLS),
        refused("-S", CALLS),
        refused("-A", CALLS),
        refused("--punch-holes", CALLS),
        refused("--init-time", CALLS),
        refused("-d", MODES),
        refused("-s", MODES),
        refused("-T", MODES),
        refused("-e", MODES),
        refused("-y", MODES),
        refused("-x", MODES),
        refused("-g", MODES),
        refused("-p", MODES),
        refused("-q", "each worker's result is always printed"),
        refused("-b", "workers are always bound to CPUs in turn"),
    ],
};

//! The options of `numa-mem`.

use crate::options::{Info, Opt, Refused};

const fn opt(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Opt {
    Opt {
        name,
        value,
        default,
        help,
    }
}

const fn refused(name: &'static str, why: &'static str) -> Refused {
    Refused { name, why }
}

/// What the registry says about `numa-mem`.
pub const INFO: Info = Info {
    name: "numa-mem",
    about: "threads use memory that may be another node's (perf bench numa mem); numa02 is \
            -p 1 -t 32 -T 32 -l N -zZ0",
    threads: &[2],
    options: &[
        opt("-p", "N", "1", "processes; several have one thread each"),
        opt("-t", "N", "--threads", "threads of the process"),
        opt(
            "-G",
            "MB",
            "1 without -P and -T, else 0",
            "memory that all processes share",
        ),
        opt(
            "-P",
            "MB",
            "0",
            "memory of each process that its threads share",
        ),
        opt(
            "-L",
            "MB",
            "0",
            "as much of -P is used once more, by one thread of the process at a time",
        ),
        opt("-T", "MB", "0", "memory of each thread"),
        opt(
            "-l",
            "N",
            "none",
            "loops over all of its memory that a thread ends after",
        ),
        opt(
            "-s",
            "SEC",
            "5 without -l, else none",
            "seconds after which no thread begins another loop",
        ),
        opt("-R", "", "on", "words are loaded"),
        opt("-W", "", "on", "words are stored to"),
        opt("-B", "", "on", "every other loop goes backwards"),
        opt("-r", "", "on", "pieces of 1024 words at random places"),
        opt("--no-data_reads", "", "off", "words are not loaded"),
        opt("--no-data_writes", "", "off", "words are not stored to"),
        opt("--no-data_backwards", "", "off", "no loop goes backwards"),
        opt("--no-data_rand_walk", "", "off", "all words in order"),
        opt(
            "-Z",
            "",
            "off",
            "fill the memory, without loading (the original fills with zeros, this with words \
             that can be checked)",
        ),
        opt("-z", "", "off", "memory holds zeros at first"),
        opt("-I", "", "on", "memory holds other words at first"),
        opt(
            "-0",
            "",
            "off",
            "the first thread, which is on CPU 0, touches all memory first",
        ),
        opt("-d", "", "off", "a line for each thread, too"),
        opt("-q", "", "off", "the lines of the original's quiet mode"),
    ],
    refused: &[
        refused("-u", "threads use memory without pauses; omit it"),
        refused(
            "-x",
            "threads are pinned to CPUs, so none can be perturbed; omit it",
        ),
        refused("-H", "huge pages are never used, as with -H -1; omit it"),
        refused(
            "-C",
            "threads are always bound to CPUs in turn; --cpus says how many",
        ),
        refused(
            "-M",
            "memory is allocated on the node of the first toucher, or with -0 on the node of CPU 0",
        ),
        refused(
            "-c",
            "threads are pinned to CPUs, so there is no convergence to measure",
        ),
        refused(
            "-m",
            "threads are pinned to CPUs, so there is no convergence to measure",
        ),
        refused("-S", "all threads always start together; omit it"),
        refused("-a", "there is no test suite; give the options of one run"),
    ],
};

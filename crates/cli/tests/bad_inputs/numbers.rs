//! Command lines with impossible numbers, sizes and times.

use crate::row::{Row, usage};

pub(crate) const ROWS: &[Row] = &[
    usage(
        "no thread",
        "minflt bench pft --threads 0",
        &["--threads: invalid count `0`", "such as 1,2,4"],
    ),
    usage(
        "fewer threads than none",
        "minflt bench pft --threads -1",
        &["--threads: invalid count `-1`", "such as 1,2,4"],
    ),
    usage(
        "a thread missing in a list",
        "minflt bench pft --threads 1,,2",
        &["invalid count ``", "such as 1,2,4"],
    ),
    usage(
        "threads beyond 32 bits",
        "minflt bench pft --threads 4294967296",
        &["`4294967296`", "such as 1,2,4"],
    ),
    usage(
        "too many threads on host",
        "minflt bench pft --threads 3000",
        &["--threads 3000: more CPUs", "at most 2048"],
    ),
    usage(
        "too many threads on linux",
        "minflt bench pft --on linux --threads 3000",
        &["--threads 3000: more threads", "at most 2048"],
    ),
    usage(
        "more CPUs than the machine has",
        "minflt bench pft --on sim --cpus 64 --threads 64",
        &["--cpus 64: altix32 has 32 CPUs", "--extend-machine"],
    ),
    usage(
        "more CPUs than can be extended to",
        "minflt bench pft --on sim --extend-machine --threads 4096",
        &["--threads 4096", "at most 2048"],
    ),
    usage(
        "a fraction of a CPU",
        "minflt bench pft --cpus 1.5",
        &["--cpus: invalid count `1.5`", "such as 1,2,4"],
    ),
    usage(
        "no size",
        "minflt bench pft --size NaN",
        &["--size: invalid size `NaN`", "such as 4096, 64K or 32G"],
    ),
    usage(
        "a size below zero",
        "minflt bench pft --size -1M",
        &["--size: invalid size `-1M`", "such as 4096, 64K or 32G"],
    ),
    usage(
        "a size of nothing",
        "minflt bench pft --size 0",
        &["--size", "from 1 byte to 128T"],
    ),
    usage(
        "a size beyond 64 bits",
        "minflt bench pft --size 99999999999T",
        &["--size", "exceeds 64 bits"],
    ),
    usage(
        "a size beyond the address space",
        "minflt bench pft --size 16777215T",
        &["--size", "from 1 byte to 128T"],
    ),
    usage(
        "a size of a fraction",
        "minflt bench pft --size 1.5G",
        &["--size: invalid size `1.5G`", "K, M, G or T"],
    ),
    usage(
        "a size below a page",
        "minflt bench pft --size 1",
        &["less than a page", "at least -b 4096"],
    ),
    usage(
        "a size of an unknown unit",
        "minflt bench pft --ram 12Q",
        &["--ram: invalid size `12Q`", "K, M, G or T"],
    ),
    usage(
        "more memory than there is",
        "minflt bench pft --ram 16777215T",
        &["--ram", "exceeds this host's available memory"],
    ),
    usage(
        "no memory",
        "minflt bench pft --ram 0",
        &["do not fit into --ram 0", "at least --ram"],
    ),
    usage(
        "a workload larger than memory",
        "minflt bench pft --size 2G --ram 1G",
        &["2049M of pages", "at least --ram 2177M"],
    ),
    usage(
        "swap without end",
        "minflt bench pft --on sim --size 4M --swap 16777215T",
        &["--ram and --swap", "cannot allocate"],
    ),
    usage(
        "no round",
        "minflt bench pft --rounds 0",
        &["'--rounds <N>'", "from 1 to 1000"],
    ),
    usage(
        "rounds below zero",
        "minflt bench pft --rounds -5",
        &["'-5'", "from 1 to 1000"],
    ),
    usage(
        "rounds without end",
        "minflt bench pft --rounds 99999999999",
        &["'--rounds <N>'", "from 1 to 1000"],
    ),
    usage(
        "no seed",
        "minflt advise pft --seeds 0",
        &["'--seeds <N>'", "from 1 to 1000"],
    ),
    usage(
        "seeds without end",
        "minflt curves pft --seeds 1001",
        &["'--seeds <N>'", "from 1 to 1000"],
    ),
    usage(
        "advice for no thread",
        "minflt advise pft --threads 0",
        &["'--threads <N>'", "an integer from 1"],
    ),
    usage(
        "advice for too many threads",
        "minflt advise pft --threads 225",
        &["spr224 has 224 CPUs", "give 1 to 224"],
    ),
    usage(
        "curves on too many CPUs",
        "minflt curves pft --machine kvm16 --threads 17",
        &["kvm16 has 16 CPUs", "at most 16"],
    ),
    usage(
        "no schedule",
        "minflt check P57 --schedules 0",
        &["--schedules 0: nothing to search", "at least 1"],
    ),
    usage(
        "schedules beyond 64 bits",
        "minflt check P57 --schedules 99999999999999999999",
        &["--schedules", "an integer from 0"],
    ),
    usage(
        "a random seed below zero",
        "minflt check P57 --seed -1",
        &["'-1'", "an integer from 0"],
    ),
    usage(
        "a schedule that is none",
        "minflt check P57 --replay 1:x",
        &["--replay: choice 1", "expected STEP:CPU"],
    ),
    usage(
        "a budget of nothing",
        "minflt reproduce --budget 0s",
        &["'0s'", "such as 60s or 5m"],
    ),
    usage(
        "a budget without its unit",
        "minflt check P57 --budget 5",
        &["'5'", "such as 60s or 5m"],
    ),
    usage(
        "a budget that is no time",
        "minflt reproduce --budget soon",
        &["'soon'", "such as 60s or 5m"],
    ),
    usage(
        "a budget below zero",
        "minflt reproduce --budget -5s",
        &["'-5s'", "such as 60s or 5m"],
    ),
    usage(
        "a budget beyond time",
        "minflt reproduce --budget 99999999999999999999s",
        &["too large", "such as 60s or 5m"],
    ),
    usage(
        "a share without its sign",
        "minflt compare a b --fail-over 5",
        &["--fail-over: invalid share `5`", "such as 5%"],
    ),
    usage(
        "a share that is no number",
        "minflt compare a b --fail-over NaN%",
        &["`NaN%`", "such as 5%"],
    ),
    usage(
        "a share below zero",
        "minflt compare a b --fail-over -5%",
        &["`-5%`", "such as 5%"],
    ),
    usage(
        "a share of all",
        "minflt compare a b --fail-over 100%",
        &["`100%`", "between 0% and 100%"],
    ),
];

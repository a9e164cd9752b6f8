//! Command lines with words that are none: commands, options, names.

use crate::row::{Row, usage};

pub(crate) const ROWS: &[Row] = &[
    // Commands and options that are none.
    usage(
        "no command of that name",
        "minflt frob",
        &["`minflt --help`", "'frob'"],
    ),
    usage(
        "a command nearly right",
        "minflt benhc pft",
        &["'benhc'", "'bench'"],
    ),
    usage(
        "no option of that name",
        "minflt bench pft --frob",
        &["'--frob'", "minflt bench --help"],
    ),
    usage(
        "an option nearly right",
        "minflt bench pft --thread 2",
        &["'--thread'", "'--threads'"],
    ),
    usage(
        "an option without its value",
        "minflt bench pft --era",
        &["--era <LIST>", "a value is required"],
    ),
    usage(
        "a value for a switch",
        "minflt bench pft --quiet=yes",
        &["'yes'", "--quiet", "no more were expected"],
    ),
    usage(
        "an option twice",
        "minflt bench pft --size 1M --size 2M",
        &["--size <SIZE>", "multiple times"],
    ),
    usage(
        "two workloads",
        "minflt bench pft ebizzy",
        &["'ebizzy'", "minflt bench --help"],
    ),
    usage(
        "an argument that is no text",
        "minflt bench \"$(printf '\\377')\"",
        &["UTF-8", "minflt bench --help"],
    ),
    usage("an empty command", "minflt ''", &["''", "minflt --help"]),
    usage(
        "help of nothing",
        "minflt help frob",
        &["'frob'", "minflt --help"],
    ),
    usage(
        "completions of no shell",
        "minflt completions ksh",
        &["'ksh'", "bash, elvish, fish, powershell, zsh"],
    ),
    usage(
        "nothing to compare",
        "minflt compare",
        &["<FIRST>", "minflt compare --help"],
    ),
    usage(
        "nothing to run",
        "minflt bench",
        &["bench: name a workload", "--proof"],
    ),
    usage(
        "nothing to search",
        "minflt check",
        &["check: name a race", "--all"],
    ),
    usage(
        "nothing to advise on",
        "minflt advise",
        &["<WORKLOAD>", "minflt advise --help"],
    ),
    // Names.
    usage(
        "no workload",
        "minflt bench frobnicate",
        &["`frobnicate`", "workloads are pft, "],
    ),
    usage(
        "a workload nearly right",
        "minflt bench ebizy",
        &["`ebizy`", "did you mean `ebizzy`?"],
    ),
    usage(
        "no era",
        "minflt bench pft --era linux-9.9",
        &["`linux-9.9`", "eras are linux-2.6.10, "],
    ),
    usage(
        "an era nearly right",
        "minflt bench pft --era linx-4.13",
        &["`linx-4.13`", "did you mean `linux-4.13`?"],
    ),
    usage(
        "an empty era",
        "minflt bench pft --era linux-4.13,",
        &["era ``", "eras are"],
    ),
    usage(
        "an era twice",
        "minflt bench pft --era best,best",
        &["--era: `best` is named twice", "--rounds"],
    ),
    usage(
        "no target",
        "minflt bench pft --on moon",
        &["--on: unknown target `moon`", "host, sim, linux"],
    ),
    usage(
        "a target twice",
        "minflt bench pft --on host,host",
        &["--on: `host` is named twice", "once"],
    ),
    usage(
        "no machine",
        "minflt bench pft --on sim --machine cray",
        &["--machine: cray: ", "machines are altix32, "],
    ),
    usage(
        "a machine nearly right",
        "minflt machines --show kvm-16",
        &["kvm-16", "did you mean `kvm16`?"],
    ),
    usage(
        "no choice",
        "minflt bench pft --rss exact",
        &["unknown rss `exact`", "choices are under-lock | "],
    ),
    usage(
        "no fault-around order",
        "minflt bench pft --fault-around-order -1",
        &["`-1`", "0 | 1 | "],
    ),
    usage(
        "no fallback order",
        "minflt bench pft --fallback-order vma,mmap",
        &["`vma,mmap`", "choices are mmap | "],
    ),
    usage(
        "no race",
        "minflt check P99",
        &["unknown race `P99`", "minflt check --list"],
    ),
    usage(
        "a race nearly right",
        "minflt races lookup-fre",
        &["`lookup-fre`", "did you mean `lookup-free`?"],
    ),
    usage(
        "no format",
        "minflt check P57 --format x86",
        &["unknown format `x86`", "formats are x86-64, "],
    ),
    usage(
        "no policy",
        "minflt check P57 --policy dfs",
        &["--policy: unknown `dfs`", "mixed | walk"],
    ),
    usage(
        "a policy nearly right",
        "minflt check P57 --policy wakl",
        &["`wakl`", "did you mean `walk`?"],
    ),
    usage(
        "no memory model",
        "minflt check P57 --memory arm",
        &["--memory: unknown `arm`", "mixed | sc | tso"],
    ),
    usage(
        "no posting",
        "minflt reproduce 1999",
        &["unknown posting `1999`", "postings are 2004, "],
    ),
    usage(
        "a posting twice",
        "minflt reproduce 2012 2012",
        &["2012 is named twice", "once"],
    ),
    usage(
        "no table",
        "minflt postings --show nope",
        &["--show: no table `nope`", "tables are 2004/unpatched, "],
    ),
    usage(
        "a table nearly right",
        "minflt postings --show 2004/unpatchd",
        &["`2004/unpatchd`", "did you mean `2004/unpatched`?"],
    ),
    usage(
        "no curve",
        "minflt curves kernbench",
        &["no scaling curve for `kernbench`", "workloads are pft, "],
    ),
    usage(
        "no advice",
        "minflt advise kernbench",
        &["no scaling curve for `kernbench`", "workloads are pft, "],
    ),
    usage(
        "nothing to fit",
        "minflt calibrate rome256",
        &["machine `rome256`", "machines are altix32, "],
    ),
    usage(
        "nothing that depends on it",
        "minflt sensitivity rome256",
        &["machine `rome256`", "machines are altix32, "],
    ),
    usage(
        "a name that is a path",
        "minflt bench pft --save ../rows",
        &["--save: invalid name `../rows`", "letters, digits"],
    ),
    usage(
        "an empty name",
        "minflt bench pft --save ''",
        &["--save: invalid name ``", "letters, digits"],
    ),
];

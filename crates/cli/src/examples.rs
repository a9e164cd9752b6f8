//! Examples of every command, for the end of its `--help` and of its manual page.
//!
//! Tests parse all of them and run those that end soon (`tests/help.rs`).

/// A command line, and what it does.
pub(crate) type Example = (&'static str, &'static str);

/// A command, and its examples.
pub(crate) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "reproduce",
        &[
            ("minflt reproduce", "all postings; a page in results/"),
            (
                "minflt reproduce 2012 2022 --tables",
                "two of them, with all tables",
            ),
            (
                "minflt reproduce --budget 60s",
                "as much as a minute allows",
            ),
            ("minflt reproduce --resume", "go on after Ctrl-C"),
        ],
    ),
    (
        "postings",
        &[
            (
                "minflt postings",
                "what was published, and how it is reproduced",
            ),
            (
                "minflt postings --show 2004/unpatched",
                "one published table in full",
            ),
            ("minflt postings --verify", "recompute the derived figures"),
        ],
    ),
    (
        "bench",
        &[
            (
                "minflt bench pft --on sim --threads 1,8 --size 4M",
                "virtual time, altix32",
            ),
            (
                "minflt bench pft --on host,linux --size 4M",
                "this computer's threads",
            ),
            (
                "minflt bench pft --on sim --threads 8 --size 4M --why",
                "what limits it",
            ),
            (
                "minflt bench pft --size 4M --rounds 4 --save before",
                "keep the rows",
            ),
        ],
    ),
    (
        "boot",
        &[
            ("minflt boot -- ./hello world", "on the minflt kernel"),
            ("minflt boot -- busybox sh", "a shell, at a terminal"),
            (
                "minflt boot --era linux-6.15 --cpus 2 -- ./hello world",
                "in one of its eras",
            ),
            (
                "minflt boot --kernel linux=/boot/vmlinuz -- ./hello world",
                "on a Linux",
            ),
        ],
    ),
    (
        "advise",
        &[
            (
                "minflt advise mmap1 --threads 8",
                "on spr224, from linux-6.15",
            ),
            (
                "minflt advise ebizzy --machine kvm16 --from linux-4.13",
                "from an older kernel",
            ),
        ],
    ),
    (
        "compare",
        &[
            (
                "minflt compare before after",
                "rows that `bench --save` kept",
            ),
            (
                "minflt compare before after --fail-over 5%",
                "status 1 where a row is worse",
            ),
            (
                "minflt compare before --benchstat",
                "the rows as Go's benchmarks print them",
            ),
        ],
    ),
    (
        "curves",
        &[
            (
                "minflt curves mmap1 --threads 1,8 --seeds 1",
                "two points of each era",
            ),
            (
                "minflt curves pft --machine kvm16 --threads 1,16 --era best",
                "one era",
            ),
            ("minflt curves --out docs", "docs/scaling.md; takes minutes"),
        ],
    ),
    (
        "efficiency",
        &[
            ("minflt efficiency pft --machine kvm16", "a small machine"),
            (
                "minflt efficiency pft --machine kvm16 --era linux-6.15,best",
                "two eras",
            ),
            (
                "minflt efficiency --out docs",
                "into docs/scaling.md; takes minutes",
            ),
        ],
    ),
    (
        "check",
        &[
            (
                "minflt check P57 --schedules 100",
                "search for one race in every era",
            ),
            (
                "minflt check P57 --negative-control",
                "with its fix switched off: it is found",
            ),
            ("minflt check --all --budget 60s", "all races, for a minute"),
            ("minflt check --list", "the races"),
        ],
    ),
    (
        "races",
        &[
            ("minflt races", "list the races by subject"),
            (
                "minflt races P30",
                "what P30 is, its fix, and where it comes from",
            ),
            (
                "minflt races P30 --show",
                "its timeline, without and with the fix",
            ),
            (
                "minflt races P30 --show --all-steps",
                "the same with no step folded",
            ),
            ("minflt races P30 --show --json", "the same as data"),
            ("minflt races P11 --as-posted", "how the 2012 posting fails"),
        ],
    ),
    (
        "eras",
        &[
            ("minflt eras", "the eras, and the kernels they stand for"),
            (
                "minflt bench pft --on sim --size 4M --era spf-2017",
                "run in one of them",
            ),
        ],
    ),
    (
        "formats",
        &[
            ("minflt formats", "the page-table formats"),
            (
                "minflt check P57 --format x86-64 --schedules 100",
                "search on one of them",
            ),
        ],
    ),
    (
        "workloads",
        &[
            ("minflt workloads", "the workloads and their options"),
            (
                "minflt bench pft --on sim -- -b 4M -f 2",
                "options of a workload, after `--`",
            ),
        ],
    ),
    (
        "machines",
        &[
            ("minflt machines", "the simulated machines"),
            (
                "minflt machines --show kvm16",
                "each number of one, with its source",
            ),
            (
                "minflt machines --show kvm16 --json kvm16.json",
                "the same as data",
            ),
        ],
    ),
    (
        "calibrate",
        &[
            (
                "minflt calibrate --host --out here.toml",
                "measure this computer",
            ),
            (
                "minflt calibrate kvm16",
                "fit again; from the repository's root",
            ),
        ],
    ),
    (
        "sensitivity",
        &[
            (
                "minflt sensitivity kvm16",
                "the conclusions that rest on its guesses",
            ),
            (
                "minflt sensitivity --docs",
                "write the table into docs/validation.md",
            ),
        ],
    ),
    (
        "completions",
        &[
            (
                "minflt completions bash",
                "to ~/.local/share/bash-completion/completions/minflt",
            ),
            (
                "minflt completions zsh",
                "to a file _minflt in a directory of $fpath",
            ),
            (
                "minflt completions fish",
                "to ~/.config/fish/completions/minflt.fish",
            ),
        ],
    ),
    (
        "man",
        &[
            ("minflt man", "the page of the program, for `man -l -`"),
            (
                "minflt man ~/.local/share/man/man1",
                "a page for each command",
            ),
        ],
    ),
];

/// The end of the help of a command.
pub(crate) fn section(examples: &[Example]) -> String {
    let wide = examples.iter().map(|(line, _)| line.len()).max();
    let wide = wide.unwrap_or(0);
    let lines = examples
        .iter()
        .map(|(line, does)| format!("\n  {line:wide$}   {does}"));
    format!("Examples:{}", lines.collect::<String>())
}

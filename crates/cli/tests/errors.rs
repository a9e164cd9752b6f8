//! What the program says to a wrong command line, word for word, and with which exit status.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use insta::assert_snapshot;
use std::process::Command;

/// Exit status and standard error of `minflt ARGS`.
fn refused(args: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_minflt"))
        .args(args.split_whitespace())
        .output()
        .expect("the program runs");
    let status = output.status.code().expect("it exits");
    assert!(
        output.stdout.is_empty(),
        "{args}: nothing is printed before the refusal"
    );
    let text = String::from_utf8(output.stderr).expect("text");
    format!("{status}: {}", text.trim_end())
}

#[test]
fn an_unknown_word_is_named_with_what_would_be_right() {
    assert_snapshot!(refused("bench pft --era linux-9.9"), @"2: minflt: unknown era `linux-9.9`; eras are linux-2.6.10, atomic-pte-2004, linux-3.7, numa-balancing-2012, anon-vma-2012, linux-3.14, fault-around-2014, linux-4.13, spf-2017, linux-5.19, hugetlb-vma-lock-2022, linux-6.4, linux-6.15, minflt, best");
    assert_snapshot!(refused("bench frobnicate"), @"2: minflt: unknown workload `frobnicate`; workloads are pft, page-fault1, page-fault2, page-fault3, file-seq, file-rand, file-sparse, disturb, ebizzy, kernbench, load, mmap1, mmap2, brk1, fork1, numa-mem, move-pages, shootdown, hugetlb-fault, hugetlb-fork, hugetlb-both, usemem, commit, kernel-ops, kernel-rates");
    assert_snapshot!(refused("bench pft --on moon"), @"2: minflt: --on: unknown target `moon`; targets are host, sim, linux");
    assert_snapshot!(refused("bench pft --on sim --machine cray1"), @"2: minflt: --machine: cray1: neither a known machine nor a file; machines are altix32, altix512, opteron48, wsm-ex8, x86-4n32, ivb-ep40, ivb-ex120, hsw-ex96, power8-80, power8-752, kvm16, icx-vm48, milan-vm48, skx448, rome256, genoa384, spr224, next1024, next2048, explorer");
    assert_snapshot!(refused("bench pft --rss exact"), @"2: minflt: unknown rss `exact`; choices are under-lock | atomic | sloppy | per-thread | per-cpu");
    assert_snapshot!(refused("bench pft --threads two"), @"2: minflt: --threads: invalid count `two`: expected positive integers, such as 1,2,4");
    assert_snapshot!(refused("check P99"), @"2: minflt: unknown race `P99`; `minflt check --list` lists all of them");
    assert_snapshot!(refused("reproduce 1999"), @"2: minflt: unknown posting `1999`; postings are 2004, 2012, 2014, 2017, 2022");
    assert_snapshot!(refused("check P57 --replay 1:x"), @r#"2: minflt: --replay: choice 1, at character 1: "1:x" is not a valid choice; expected STEP:CPU, STEP:next, STEP:hold or STEP:drainCPU"#);
    assert_snapshot!(refused("check P57 --schedules 0"), @"2: minflt: --schedules 0: nothing to search; expected at least 1");
    assert_snapshot!(refused("check --all --schedules 0"), @"2: minflt: --schedules 0: nothing to search; expected at least 1");
    assert_snapshot!(refused("bench pft --cpus 1000000000 --threads 2"), @"2: minflt: --cpus 1000000000: more CPUs than are supported; give at most 2048");
    assert_snapshot!(refused("bench pft --cpus 1000000000"), @"2: minflt: --cpus 1000000000: more CPUs than are supported; give at most 2048");
    assert_snapshot!(refused("bench pft --threads 3000"), @"2: minflt: --threads 3000: more CPUs than are supported; give at most 2048");
    assert_snapshot!(refused("bench pft --on sim --cpus 1000000000"), @"2: minflt: --cpus 1000000000: more CPUs than are supported; give at most 2048");
    assert_snapshot!(refused("check P57 --policy dfs"), @"2: minflt: --policy: unknown `dfs`; choices are mixed | walk | pct | samples | time");
    assert_snapshot!(refused("check P57 --memory arm"), @"2: minflt: --memory: unknown `arm`; choices are mixed | sc | tso");
}

#[test]
fn what_would_be_ignored_is_refused() {
    assert_snapshot!(refused("bench pft --on host --machine kvm16"), @"2: minflt: --machine: only the sim target simulates a machine; add sim to --on");
    assert_snapshot!(refused("bench pft --on host --extend-machine"), @"2: minflt: --extend-machine: only the sim target simulates a machine; add sim to --on");
    assert_snapshot!(refused("bench pft --on linux --ram 1G"), @"2: minflt: --ram: the linux target uses the host's RAM; add host or sim to --on");
    assert_snapshot!(refused("bench pft --on host --threads 2 --cpus 1 --size 1M"), @"2: minflt: --cpus 1 with 2 threads: on host each thread is one CPU; use the same number, or omit --cpus");
    assert_snapshot!(refused("bench file-rand --on sim -- --every-word"), @"2: minflt: file-rand: a simulated page holds one word; omit --every-word, and give the time of loading a page's words by --page-ns");
    assert_snapshot!(refused("bench brk1 --size 1M"), @"2: minflt: --size: brk1 grows the heap by one page; it has no size");
    assert_snapshot!(refused("bench pft --on sim --size 1M -- -z"), @"2: minflt: pft: a simulated page holds one word, so one word per page is touched; omit -c and -z");
    assert_snapshot!(refused("bench ebizzy --threads 4 -- -mTRpt 8"), @"2: minflt: ebizzy: -t 8 and --threads 4 differ; give one of them");
    assert_snapshot!(refused("reproduce 2017 --full"), @"2: minflt: --full: only the 2004 tables can be simulated at full size; add 2004");
    assert_snapshot!(refused("check P57 --all"), @"2: minflt: the argument '[SCENARIO]' cannot be used with '--all'; see `minflt check --help`");
    assert_snapshot!(refused("bench --proof --era linux-4.13"), @"2: minflt: the argument '--proof' cannot be used with '--era <LIST>'; see `minflt bench --help`");
}

#[test]
fn an_account_is_asked_of_sim_only_and_a_file_holds_one_run() {
    assert_snapshot!(refused("bench pft --why"), @"2: minflt: --why: only the sim target accounts time; use --on sim");
    assert_snapshot!(refused("bench pft --on sim,host --flame a.svg"), @"2: minflt: --flame: only the sim target accounts time; use --on sim");
    assert_snapshot!(refused("bench pft --on sim --threads 1,2 --profile a.json"), @"2: minflt: --profile: 2 runs, but the file holds one; give one era and one number of threads");
    assert_snapshot!(refused("curves kernbench"), @"2: minflt: no scaling curve for `kernbench`; workloads are pft, page-fault1, ebizzy, mmap1");
    assert_snapshot!(refused("efficiency kernbench"), @"2: minflt: no efficiency of `kernbench`; workloads are pft, page-fault1, ebizzy, mmap1");
    assert_snapshot!(refused("curves pft --threads 1,2048"), @"2: minflt: --threads 2048: next1024 has 1024 CPUs; give at most 1024, or a larger --machine");
    assert!(
        refused("bench pft --on sim --size 1M --free mm.nothing").starts_with(
            "2: minflt: --free: the run did not access `mm.nothing`; the most expensive words are "
        )
    );
}

#[test]
fn an_illegal_mix_gets_the_tables_reason() {
    assert_snapshot!(refused("bench pft --era atomic-pte-2004 --exchange emulated --threads 2 --size 1M"), @"2: minflt: atomic-pte-2004 exchange=emulated: refused: exchange emulated on several CPUs whose hardware sets accessed and dirty bits: the hardware does not take the lock, so an accessed or dirty bit that it sets between the compare and the store is lost; use exchange native, one CPU, or a machine that sets these bits in software, such as altix32");
    assert_snapshot!(refused("bench pft --era spf-2017 --protocol compare-exchange"), @"2: minflt: spf-2017 protocol=compare-exchange: refused: fallback-order speculative with protocol compare-exchange: the sequence check and the exchange are not atomic, so munmap can free the page table between them; use protocol table-lock or mm-lock: the fault trylocks and then revalidates");
    assert_snapshot!(refused("bench pft --era spf-2017 --reclamation immediate"), @"2: minflt: spf-2017 reclamation=immediate: refused: fallback-order speculative with reclamation immediate: a speculative lookup reads VMAs and page tables that a writer may be freeing; use reclamation srcu or rcu");
    assert_snapshot!(refused("bench pft --era linux-4.13 --ladder speculative"), @"2: minflt: linux-4.13 fallback-order=speculative: refused: fallback-order speculative: a speculative fault may retry without end; end the fallback order with a lock mode that blocks: speculative,mmap");
}

#[test]
fn sizes_are_checked_against_the_memory_there_is() {
    assert_snapshot!(refused("bench pft --size 2G --ram 1G"), @"2: minflt: the workload's 2049M of pages do not fit into --ram 1G; use a smaller size, at least --ram 2177M, or at least --swap 1153M");
    assert_snapshot!(refused("bench pft --size 2G --ram 1G --swap 512M"), @"2: minflt: the workload's 2049M of pages do not fit into --ram 1G and --swap 512M; use a smaller size, at least --ram 1665M, or at least --swap 1153M");
    assert_snapshot!(refused("bench pft --on sim --size 100G"), @"2: minflt: the workload's 102401M of pages do not fit into --ram 64G; use a smaller size, at least --ram 108801M, or at least --swap 43265M");
    assert_snapshot!(refused("bench pft --size 12Q"), @"2: minflt: --size: invalid size `12Q`: the suffix must be K, M, G or T");
    assert_snapshot!(refused("bench pft -- -q"), @"2: minflt: pft: unknown option `-q`; options are -b, -g, -f, -r, -c, -z, --measure");
    assert_snapshot!(refused("bench pft --on sim --threads 64 --cpus 64"), @"2: minflt: --cpus 64: altix32 has 32 CPUs; give at most 32, a larger --machine, or --extend-machine to repeat its topology");
    assert_snapshot!(refused("bench"), @"2: minflt: bench: name a workload (see `minflt workloads`) or use --proof");
}

/// The posting of 2012 as posted breaks in both ways, and what was taken in its place does not.
#[test]
fn the_posting_of_2012_breaks_as_posted() {
    let minflt = Command::new(env!("CARGO_BIN_EXE_minflt"))
        .args(["races", "P11", "--as-posted"])
        .output()
        .expect("the program runs");
    let text = String::from_utf8(minflt.stdout).expect("text");
    assert!(minflt.status.success(), "{text}");
    for said in ["P10 (", "P11 ("] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert_eq!(text.matches("nothing found").count(), 2, "{text}");
}

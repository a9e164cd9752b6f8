use super::{Check, Outcome, checks_table, verify, worst};
use crate::published::{Posting, PublishedTable, postings};

fn table<'a>(postings: &'a mut [Posting], id: &str) -> &'a mut PublishedTable {
    let mut tables = postings
        .iter_mut()
        .flat_map(|it| it.tables.iter_mut().chain(&mut it.summaries));
    tables.find(|table| table.id == id).unwrap()
}

/// Sets one cell to another number and returns what is now wrong, as `table [rule] row, column`.
fn corrupt(id: &str, row: &str, column: &str, value: f64) -> Vec<String> {
    let mut postings = postings().unwrap();
    let table = table(&mut postings, id);
    let at = table.row_labels().position(|label| label == row).unwrap();
    let column = table
        .columns
        .iter()
        .position(|it| it.name == column)
        .unwrap();
    table.rows[at][column].value = Some(value);
    failures(&verify(&postings))
}

fn failures(checks: &[Check]) -> Vec<String> {
    let failed = checks.iter().filter(|check| check.outcome == Outcome::Fail);
    failed
        .map(|it| format!("{} [{}] {} / {}", it.table, it.rule, it.row, it.column))
        .collect()
}

#[test]
fn the_postings_hold_but_for_their_known_slips() {
    let postings = postings().unwrap();
    let checks = verify(&postings);
    assert_eq!(failures(&checks), [""; 0], "{}", {
        checks_table(&checks, &[Outcome::Fail]).to_text()
    });
    assert_eq!(worst(&checks), Outcome::Suspect);
    let mut suspects: Vec<_> = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Suspect)
        .map(|check| format!("{} / {} / {}", check.table, check.row, check.column))
        .collect();
    suspects.dedup();
    assert_eq!(
        suspects,
        [
            "2014/sparse / 8, time / 1",
            "2014/sparse / 32, time / 1",
            "2017/kernbench-power8-half / Elapsed Time / 4.13.0-rc3-spf",
            "2022/fork-vma-lock / 1 / max",
        ],
        "the 8-thread cell is caught twice, by its row and by its twin, then listed once"
    );
    for table in postings
        .iter()
        .flat_map(|it| it.tables.iter().chain(&it.summaries))
    {
        assert!(
            checks.iter().any(|check| check.table == table.id),
            "{}",
            table.id
        );
    }
}

#[test]
fn pft_2004() {
    let rate = "2004/unpatched [pft] 4 / fault/wsec";
    let wall = "2004/unpatched [pft] 4 / Wall";
    // Reading the Wall column as it is printed: the trap.
    assert_eq!(
        corrupt("2004/unpatched", "4", "Wall", 106.007),
        [wall, rate]
    );
    assert!(corrupt("2004/unpatched", "4", "fault/wsec", 197_804.486).contains(&rate.to_owned()));
    assert_eq!(
        corrupt("2004/patched", "8", "flt/cpu/s", 78_428.5),
        ["2004/patched [pft] 8 / flt/cpu/s"]
    );
    assert_eq!(corrupt("2004/patched", "1", "Gb", 33.0).len(), 2);
}

#[test]
fn jvm_and_numa02_2012() {
    assert_eq!(
        corrupt("2012/jvm-mainline", "spec3.txt", "Throughput", 130_042.31),
        ["2012/jvm-mainline [sum] SUM / Throughput"]
    );
    let broken = |row: &str, value| {
        corrupt("2012/numa02-patched", row, "Value", value)
            .contains(&format!("2012/numa02-patched [numa-mem] {row} / Value"))
    };
    assert!(broken("spread", 4.0));
    assert!(broken("nsecs/byte/thread", 0.717));
    assert!(broken("GB/sec/thread", 1.395));
    assert!(broken("GB/sec total", 44.593));
    assert!(broken("data processed, total", 858.995));
    assert!(broken("data processed, per thread", 26.845));
    assert!(broken("runtime/thread", 17.7));
    // The time itself: all that follows from it is wrong.
    assert!(
        corrupt(
            "2012/numa02-mainline",
            "elapsed (max) thread time",
            "Value",
            60.0
        )
        .len()
            > 3
    );
}

#[test]
fn fault_around_2014() {
    // Not even one fault too few.
    assert_eq!(
        corrupt("2014/sequential", "1, minor-faults", "9", 8_191.0),
        ["2014/sequential [minor-faults] 1, minor-faults / 9"]
    );
    assert_eq!(
        corrupt("2014/random", "120, minor-faults", "5", 1_900_000.0),
        ["2014/random [minor-faults] 120, minor-faults / 5"]
    );
    assert_eq!(
        corrupt("2014/linux-build", "minor-faults", "7", 199_568_945.0),
        ["2014/linux-build [monotone] minor-faults / 7"]
    );
    // The copied cell, put right: no longer a suspect, and its twin neither.
    assert_eq!(
        corrupt("2014/sparse", "8, time", "1", 0.138),
        [
            "2014/sparse [suspect] 8, time / 1",
            "2014/sparse [suspect] 32, time / 1"
        ]
    );
    // Another cell that breaks its row is no known slip.
    assert_eq!(
        corrupt("2014/sparse", "120, time", "4", 2.0),
        ["2014/sparse [monotone] 120, time / 4"]
    );
}

#[test]
fn ebizzy_and_kernbench_2017() {
    let spf = "4.13.0-rc3-spf";
    assert_eq!(
        corrupt("2017/kernbench-x86-half", "Context Switches", spf, 46_789.0)
            .first()
            .unwrap(),
        "2017/kernbench-x86-half [change] Context Switches / 4.13.0-rc3-spf"
    );
    assert_eq!(
        corrupt("2017/kernbench-x86-optimal", "Percent CPU", spf, 1_434.0).len(),
        2,
        "what the times alone would give, and the deviation then too"
    );
    assert_eq!(
        corrupt("2017/kernbench-power8-optimal", "Elapsed Time", spf, 111.3),
        [
            "2017/kernbench-power8-optimal [kernbench] Percent CPU / 4.13.0-rc3-spf",
            "2017/kernbench-power8-optimal [less] Elapsed Time / 4.13.0-rc3-spf",
        ]
    );
    assert_eq!(
        corrupt("2017/ebizzy-x86", "Max", "4.13-rc3", 11_455.0),
        ["2017/ebizzy-x86 [less] Average / 4.13-rc3"]
    );
    assert_eq!(
        corrupt("2017/ebizzy-power8", "Average", "4.13-rc3-spf", 64_427.62),
        ["2017/ebizzy-power8 [change] Average / 4.13-rc3-spf"]
    );
}

#[test]
fn hugetlb_2022() {
    assert_eq!(
        corrupt("2022/fork-unmodified", "1", "max", 3_546.5),
        ["2022/fork-unmodified [min-avg-max] 1 / max"]
    );
    assert_eq!(
        corrupt("2022/fault-revert", "24", "avg", 96_457.0),
        ["2022/fault-revert [min-avg-max] 24 / avg"]
    );
    assert_eq!(
        corrupt("2022/usemem-revert", "48", "avg", 497_106.0),
        ["2022/usemem-revert [min-avg-max] 48 / avg"]
    );
    // The lost digit, put back.
    assert_eq!(
        corrupt("2022/fork-vma-lock", "1", "max", 3_467.288_792),
        ["2022/fork-vma-lock [suspect] 1 / max"]
    );
    // A rounded summary.
    assert_eq!(
        corrupt("2022/summary", "faults", "vma locking", 65_597.0),
        ["2022/summary [truncated] faults / vma locking"]
    );
}

#[test]
fn a_rule_that_cannot_be_applied_fails() {
    let mut all = postings().unwrap();
    table(&mut all, "2012/jvm-patched").columns[1].name = "Bops".to_owned();
    let missing = failures(&verify(&all));
    assert!(
        missing.contains(&"2012/jvm-patched [sum] the rule itself / ".to_owned()),
        "{missing:?}"
    );

    let mut all = postings().unwrap();
    table(&mut all, "2014/random")
        .rows
        .retain(|row| row[1].printed != "time");
    assert_eq!(
        failures(&verify(&all)),
        ["2014/random [distinct] the rule itself / "]
    );

    let mut all = postings().unwrap();
    all[4].tables.retain(|it| it.id != "2022/combined-revert");
    assert_eq!(
        failures(&verify(&all)),
        ["2022/summary [truncated] the rule itself / "]
    );
}

#[test]
fn nothing_at_all_is_a_pass() {
    assert_eq!(worst(&verify(&[])), Outcome::Pass);
}

//! Tests of `numa-mem` on the fake target.

use super::{First, Memory, NumaMem, TouchedBy};
use crate::fake::{Fake, plan};
use crate::outcome::Columns;
use crate::target::{Stop, TargetError, Use};

fn parse(line: &str) -> Result<NumaMem, String> {
    let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    NumaMem::parse(&args).map_err(|error| error.to_string())
}

#[test]
fn the_posted_command_line_parses() {
    let test = parse("-p 1 -t 32 -T 32 -l 800 -zZ0").unwrap();
    let memory = Memory {
        thread: 32 << 20,
        ..Memory::default()
    };
    assert_eq!((test.tasks(), test.memory), (Some(32), memory));
    assert_eq!(
        (test.loops, test.limit_ns, test.how),
        (Some(800), None, Use::Store)
    );
    assert_eq!(
        (test.first, test.touched_by),
        (First::Zeros, TouchedBy::First)
    );
    assert_eq!(test.bytes_needed(32, 4096), (1 << 30) + 32 * 4 * 4096);
    let defaults = parse("").unwrap();
    assert_eq!(defaults, NumaMem::default());
    let short = parse("-s 0.5 -T 64K -G 0.25 --no-data_rand_walk -q").unwrap();
    assert_eq!(
        (short.memory.thread, short.memory.global),
        (64 << 10, 256 << 10)
    );
    assert_eq!(
        (short.limit_ns, short.random, short.quiet),
        (Some(500_000_000), false, true)
    );
}

#[test]
fn what_is_not_supported_is_refused() {
    for (line, says) in [
        (
            "-x 3",
            "numa-mem: -x is not supported: threads are pinned to CPUs, so none can be perturbed; \
             omit it",
        ),
        (
            "-H -1",
            "numa-mem: -H is not supported: huge pages are never used, as with -H -1; omit it",
        ),
        (
            "-zZ0c",
            "numa-mem: -c is not supported: threads are pinned to CPUs, so there is no convergence \
             to measure",
        ),
        (
            "-p 2 -t 2",
            "numa-mem: -p and -t: several processes have one thread each; give -p 1 or -t 1",
        ),
        (
            "-p 2 -T 1 -0",
            "numa-mem: -0: the first thread can touch the memory of its own process only; give -p 1",
        ),
        ("-zI", "numa-mem: -z and -I are mutually exclusive"),
        (
            "-P 1 -L 2",
            "numa-mem: -L is a part of -P; give no more than -P has",
        ),
        ("-G 0", "numa-mem: no memory at all; give -T, -P or -G"),
        (
            "-T -1",
            "numa-mem: -T must be megabytes, such as 32 or 0.5, or a size such as 64K, got `-1`",
        ),
        (
            "--no-data_reads --no-data_writes",
            "numa-mem: --no-data_reads and --no-data_writes leave nothing to do; leave one of them \
             out",
        ),
    ] {
        assert_eq!(parse(line), Err(says.to_owned()), "{line}");
    }
}

#[test]
fn data_are_counted_and_checked_in_every_mode() {
    for (line, tasks, bytes, looks) in [
        // Pages of its own that each thread looks at, and fresh memory.
        ("-T 64K -l 3 -zZ0", 2, 3 * (64 << 10), 16 + 8),
        (
            "-T 64K -l 3 -0 --no-data_rand_walk",
            2,
            3 * (64 << 10),
            16 + 8,
        ),
        (
            "-T 64K -l 2 --no-data_rand_walk --no-data_writes",
            2,
            2 * (64 << 10),
            16 + 8,
        ),
        (
            "-p 2 -T 16K -P 16K -L 8K -G 8K -l 2",
            2,
            2 * (48 << 10),
            4 + 8,
        ),
        (
            "-t 2 -T 16K -P 16K -L 8K -G 8K -l 2",
            2,
            2 * (48 << 10),
            4 + 8,
        ),
        ("-P 64K -l 2 -z", 3, 2 * (64 << 10), 8),
    ] {
        let test = parse(line).unwrap();
        let outcome = test.run(&Fake::default(), &plan(tasks)).unwrap();
        assert!(outcome.workers.iter().all(|it| it.ops == bytes), "{line}");
        assert_eq!(
            outcome.checks["contents"],
            looks * u64::from(tasks),
            "{line}"
        );
        let Some(Columns::NumaMem(columns)) = &outcome.columns else {
            panic!()
        };
        assert_eq!(
            (columns.tasks, columns.bytes),
            (tasks, bytes * u64::from(tasks))
        );
    }
}

#[test]
fn all_pages_are_there_before_the_window_opens() {
    for line in ["-T 64K -l 1 -z0", "-T 64K -P 64K -l 1"] {
        let test = parse(line).unwrap();
        let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
        assert!(outcome.workers.iter().all(|it| it.faults == 0), "{line}");
        assert!(outcome.events["page-faults"] >= 2 * 16, "{line}");
    }
}

#[test]
fn no_loop_begins_after_the_time_is_over() {
    // The fake's clock: a nanosecond for each store.
    let test = parse("-T 64K -s 0.00002 -zZ --no-data_rand_walk").unwrap();
    let outcome = test.run(&Fake::default(), &plan(1)).unwrap();
    let loops = outcome.workers[0].ops / (64 << 10);
    assert_eq!(loops, 3, "8192 words a loop, 20000 ns");
}

#[test]
fn a_lost_store_is_seen() {
    // 16 pages of 512 words are touched first; the last loop's first word of page 1 is lost.
    let test = parse("-t 1 -T 64K -l 1 -zZ --no-data_rand_walk --no-data_backwards").unwrap();
    for (store, page) in [(16 * 512, 0), (16 * 512 + 512, 1)] {
        let fake = Fake {
            lose_store: Some(store),
            ..Fake::default()
        };
        let error = test.run(&fake, &plan(1)).unwrap_err();
        let TargetError::Stopped {
            why: Stop::Contents(_, expected, 0),
            ..
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(expected & 0xffff_ffff, page);
    }
}

#[test]
fn without_files_global_memory_is_refused() {
    let bare = Fake {
        bare: true,
        ..Fake::default()
    };
    let words = parse("-G 1").unwrap().run(&bare, &plan(1)).unwrap_err();
    assert!(words.to_string().contains("leave -G out"), "{words}");
    assert!(parse("-T 16K -l 1").unwrap().run(&bare, &plan(1)).is_ok());
}

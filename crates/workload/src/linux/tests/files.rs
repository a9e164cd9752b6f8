//! Files on real Linux.

use super::{own, plan};
use crate::file::{File, Pattern, Words};
use crate::linux::Linux;
use crate::page_fault2::PageFault2;
use crate::target::{
    Cache, CommonFile, Plan, Prot, Sharing, Spaces, Stop, Target, TargetError, Worker,
};
use minflt_addr::VirtAddr;

#[test]
fn files_are_read_in_every_order_by_threads_and_processes() {
    let linux = Linux::new();
    for pattern in [Pattern::Sequential, Pattern::Random, Pattern::Sparse] {
        for words in [Words::First, Words::Every] {
            if pattern == Pattern::Sparse && words == Words::Every {
                continue;
            }
            let test = File {
                bytes: 8 << 20,
                words,
                ..File::new(pattern)
            };
            let outcome = test.run(&linux, &plan(2)).unwrap();
            let pages = match pattern {
                Pattern::Sparse => (8 << 20) / linux.table_bytes(),
                _ => (8 << 20) / linux.page_size(),
            };
            assert_eq!(outcome.pages, 2 * pages);
            assert!(outcome.faults > 0 && outcome.checks["contents"] > 2);
            // A fault maps 64 KiB at the most here, unless somebody has set something else.
            let around = linux.fault_around_bytes().unwrap_or(64 << 10);
            let least = outcome.pages / (around / linux.page_size()).max(1);
            assert!(outcome.faults >= least, "{} faults", outcome.faults);
        }
    }
}

#[test]
fn a_file_that_is_not_in_the_cache_is_read() {
    let test = File {
        bytes: 2 << 20,
        cache: Cache::Cold,
        ..File::new(Pattern::Sequential)
    };
    // Where the temporary directory is in memory no fault is a major one.
    let outcome = test.run(&Linux::new(), &plan(1)).unwrap();
    assert!(outcome.faults > 0 && outcome.checks["contents"] > 0);
}

#[test]
fn stores_to_files_fault_once_a_page() {
    for sharing in [Sharing::Private, Sharing::Shared] {
        for spaces in [Spaces::Shared, Spaces::Own] {
            let mut test = PageFault2::new(sharing);
            test.bytes = 1 << 20;
            test.tasks.rounds = 2;
            test.tasks.spaces = spaces;
            let outcome = test.run(&Linux::new(), &plan(2)).unwrap();
            assert!(outcome.faults >= outcome.pages, "{outcome:?}");
            assert!(outcome.checks["contents"] > 0);
        }
    }
}

#[test]
fn the_common_file_shows_stores_to_shared_mappings_to_all() {
    let linux = Linux::new();
    let page = linux.page_size();
    let file = Some(CommonFile {
        bytes: 3 * page - 1,
        cache: Cache::Warm,
    });
    for plan in [Plan { file, ..plan(2) }, Plan { file, ..own(2) }] {
        let report = linux.process(&plan, |w| {
            let mine = w.map_common(Prot::ReadWrite, Sharing::Private)?;
            let all = w.map_common(Prot::ReadWrite, Sharing::Shared)?;
            let last = |at: VirtAddr| VirtAddr(at.0 + 2 * page);
            assert_eq!(w.load(last(mine))?, crate::file_word(2));
            w.barrier();
            w.store(mine, 7)?;
            w.store(last(all), 9)?;
            w.barrier();
            assert_eq!([w.load(mine)?, w.load(all)?], [7, crate::file_word(0)]);
            assert_eq!(w.load(last(all))?, 9);
            w.unmap(all, 3 * page)
        });
        assert!(report.is_ok(), "{report:?}");
    }
    let without = linux.process(&plan(1), |w| {
        w.map_common(Prot::Read, Sharing::Shared).map(|_| ())
    });
    let why = Stop::Errno(libc::ENODEV);
    assert_eq!(
        without.unwrap_err(),
        TargetError::Stopped { worker: 0, why }
    );
}

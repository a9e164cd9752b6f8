//! Calls with any arguments, in the era that the first byte chooses.
//!
//! On x86-64 only: the other formats are compiled into the test of `differential`, which draws its
//! arguments from the same table, and would triple what the fuzzer takes to build.

use core::cell::RefCell;
use minflt_differential::extremes::{Bench, Call};
use minflt_mm::ERAS;
use minflt_pgtable::{Paging, X86_64};

/// Bytes of the machine's memory: what the calls map does not fit, now and then.
const RAM: usize = 8 << 20;

thread_local! {
    static BENCHES: RefCell<Vec<Option<Bench<X86_64>>>> =
        RefCell::new(ERAS.iter().map(|_| None).collect());
}

/// Makes the calls that the bytes stand for.
///
/// # Panics
/// If a call panics, changes the page that none may touch, or leaves a ledger that does not add up;
/// or if no system can be started.
pub fn calls(bytes: &[u8]) {
    let Some((era, bytes)) = crate::era_of(bytes) else {
        return;
    };
    BENCHES.with_borrow_mut(|benches| {
        let start = || match Bench::start(ERAS[era].config, RAM) {
            Ok(bench) => bench,
            Err(why) => panic!("{}: {why}", ERAS[era].name),
        };
        let bench = benches[era].get_or_insert_with(start);
        if let Err(why) = bench.run(Call::all_of(bytes, X86_64::page())) {
            panic!("{}: {why}", ERAS[era].name);
        }
    });
}

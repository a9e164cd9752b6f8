//! Steps on `mm`, in the era that the first byte chooses, and on the model.

use core::cell::RefCell;
use minflt_differential::bytes;
use minflt_differential::compare::compare;
use minflt_differential::ours::{CHOICE, Ours};
use minflt_mm::ERAS;

thread_local! {
    /// A system for each era, from its first input on: a case has an address space of its own.
    static SYSTEMS: RefCell<Vec<Option<Ours>>> = RefCell::new(ERAS.iter().map(|_| None).collect());
}

/// Runs the steps that the bytes stand for.
///
/// # Panics
/// If `mm` and the model disagree after a step, an oracle speaks, the ledger does not add up at the
/// end, or no system can be started.
pub fn steps(bytes: &[u8]) {
    let Some((era, bytes)) = crate::era_of(bytes) else {
        return;
    };
    let (steps, expected) = bytes::case(bytes, &CHOICE);
    SYSTEMS.with_borrow_mut(|systems| {
        let start = || match Ours::start(&ERAS[era]) {
            Ok(system) => system,
            Err(why) => panic!("{}: {why}", ERAS[era].name),
        };
        let system = systems[era].get_or_insert_with(start);
        if let Some(found) = compare(system, &steps, &expected) {
            panic!("{found}");
        }
    });
}

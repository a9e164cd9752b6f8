//! Written by `cargo xtask weaken` into its copy of `sync`, and compiled only there: every ordering
//! that names a pair asks this module what it is, and the environment says which one is weaker.

extern crate std;

use crate::machine::Machine;
use crate::prim::Ordering;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::string::String;
use std::sync::OnceLock;

/// `NUMBER=ORDERING`, where `Removed` stands for a fence that is not executed.
const CHANGE: &str = "MINFLT_WEAKEN";
/// A file that gets a line `NUMBER TEST` for each ordering that a test reaches.
const REACHED: &str = "MINFLT_WEAKEN_REACHED";

#[derive(Clone, Copy)]
struct Change {
    number: u32,
    to: Option<Ordering>,
}

static WANTED: OnceLock<(Option<Change>, Option<PathBuf>)> = OnceLock::new();

std::thread_local! {
    /// A test is one thread of the host, whatever threads it models.
    static SEEN: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
}

/// The ordering of operation `number`.
pub(crate) fn at(number: u32, order: Ordering) -> Ordering {
    match changed(number) {
        Some(Some(weaker)) => weaker,
        _ => order,
    }
}

/// Fence `number`.
pub(crate) fn fence<M: Machine>(number: u32, order: Ordering) {
    match changed(number) {
        Some(None) => {}
        Some(Some(weaker)) => M::fence(weaker),
        None => M::fence(order),
    }
}

fn changed(number: u32) -> Option<Option<Ordering>> {
    let (change, log) = WANTED.get_or_init(|| {
        let change = std::env::var(CHANGE).ok();
        let log = std::env::var_os(REACHED).map(PathBuf::from);
        (change.map(|change| parse(&change)), log)
    });
    if let Some(log) = log {
        note(log, number);
    }
    change.filter(|it| it.number == number).map(|it| it.to)
}

fn parse(change: &str) -> Change {
    let parts = change.split_once('=');
    let parsed = parts.and_then(|(number, to)| {
        let to = match to {
            "Relaxed" => Some(Ordering::Relaxed),
            "Acquire" => Some(Ordering::Acquire),
            "Release" => Some(Ordering::Release),
            "AcqRel" => Some(Ordering::AcqRel),
            "Removed" => None,
            _ => return None,
        };
        let number = number.parse().ok()?;
        Some(Change { number, to })
    });
    match parsed {
        Some(change) => change,
        None => panic!("{CHANGE}: `{change}` is no change"),
    }
}

fn note(log: &PathBuf, number: u32) {
    if !SEEN.with_borrow_mut(|seen| seen.insert(number)) {
        return;
    }
    let thread = std::thread::current();
    let line: String = std::format!("{number} {}\n", thread.name().unwrap_or("?"));
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(log);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("{REACHED}: {error}");
    }
}

//! Standard output that may be closed early: `minflt races | head` is no error.
#![expect(
    clippy::disallowed_types,
    reason = "whether there is a reader is known to the program, not to a machine of ours"
)]

use console::Term;
use core::sync::atomic::{AtomicBool, Ordering};
use minflt_report::Table;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;

/// Whether the program goes on when nobody reads its output any more.
static GOES_ON: AtomicBool = AtomicBool::new(false);
/// Whether nobody reads it any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether something could not be written to it.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether the program has to fail since its output is not whole.
pub(crate) fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// From now on a closed or full output stops nothing: what is written elsewhere is worth having.
pub(crate) fn go_on_without_reader() {
    GOES_ON.store(true, Ordering::Relaxed);
}

/// Writes to standard output. When nobody reads it any more, ends the program quietly, or goes on
/// without, as [`go_on_without_reader`] says.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    if CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            if !GOES_ON.load(Ordering::Relaxed) {
                process::exit(0);
            }
            CLOSED.store(true, Ordering::Relaxed);
        }
        Err(error) => {
            complain(format_args!(
                "minflt: cannot write to standard output: {error}"
            ));
            if !GOES_ON.load(Ordering::Relaxed) {
                process::exit(1);
            }
            FAILED.store(true, Ordering::Relaxed);
            CLOSED.store(true, Ordering::Relaxed);
        }
    }
}

/// Writes a line to standard error. That it cannot be written changes no exit status.
pub(crate) fn complain(line: fmt::Arguments<'_>) {
    let _full_or_closed = io::stderr().lock().write_fmt(format_args!("{line}\n"));
}

/// A table as text: on a terminal no wider than that, by fewer columns; else whole.
pub(crate) fn table_text(table: &Table) -> String {
    match Term::stdout().size_checked() {
        Some((_, wide)) => table.to_text_fitted(usize::from(wide)),
        None => table.to_text(),
    }
}

/// A whole number in groups of three digits.
pub(crate) fn grouped(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `print!`, by way of [`write()`].
macro_rules! out {
    ($($arg:tt)*) => { $crate::out::write(format_args!($($arg)*)) };
}

/// `println!`, by way of [`write()`].
macro_rules! outln {
    () => { $crate::out::write(format_args!("\n")) };
    ($($arg:tt)*) => {
        $crate::out::write(format_args!("{}\n", format_args!($($arg)*)))
    };
}

pub(crate) use {out, outln};

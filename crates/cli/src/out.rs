//! Standard output that may be closed early: `minflt races | head` is no error.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;

/// Writes to standard output; ends the program quietly when nobody reads it any more.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    match io::stdout().lock().write_fmt(text) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            eprintln!("minflt: cannot write to standard output: {error}");
            process::exit(1);
        }
    }
}

/// `print!`, by way of [`write()`].
macro_rules! out {
    ($($arg:tt)*) => { $crate::out::write(format_args!($($arg)*)) };
}

/// `println!`, by way of [`write()`].
macro_rules! outln {
    () => { $crate::out::write(format_args!("\n")) };
    ($($arg:tt)*) => {{
        $crate::out::write(format_args!($($arg)*));
        $crate::out::write(format_args!("\n"));
    }};
}

pub(crate) use {out, outln};

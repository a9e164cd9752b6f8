//! Instructions an operation on the minflt kernel in QEMU, after all else: verdicts do not wait for
//! the build.

use super::Job;
use crate::commands::bench::vm::Ops;
use crate::commands::boot::lab;
use crate::error::{Error, failed};
use crate::out::{outln, table_text};
use crate::progress::{OFTEN, Progress};
use core::time::Duration;
use minflt_report::Table;

/// What it is called among the parts that are kept.
const PART: &str = "kernel-ops";
const HEADING: &str = "On the CPU's own page tables (the minflt kernel in QEMU)";
const INTRO: &str = "The same library, on page tables that a CPU walks: the kernel of this repository boots in QEMU, \
     which counts the instructions of each operation of one program, `guest/src/bin/bench.rs`. \
     Linux kernels that `MINFLT_LINUX` names run the same binary. Instructions are not time: they \
     leave out caches, TLB misses and the cost of a trap; docs/kernel.md has more eras and what \
     the kernels differ in.";
/// The same in a line, below rows without their remarks.
const SHORT: &str =
    "Instructions, which are not time; conditions are on the page, more in docs/kernel.md.";
/// A machine that takes longer has hung.
const TIMEOUT: Duration = Duration::from_secs(90);

impl Job<'_> {
    /// The rows of the kernel. Returns why it does not build, boot or run, if so: all else is worth
    /// having without it.
    pub(super) fn kernel(&mut self) -> Result<Option<Error>, Error> {
        // It belongs to no posting.
        if !self.args.postings.is_empty() {
            return Ok(None);
        }
        if let Some(why) = lab::missing() {
            outln!("\n{HEADING}:\nskipped: {why}");
            return Ok(None);
        }
        if !self.outputs.has_part(PART) && self.is_over("the kernel in QEMU") {
            return Ok(None);
        }
        let ops = Ops::new();
        self.progress = Progress::every(OFTEN, self.args.quiet, ops.steps());
        let progress = &self.progress;
        let made = self.outputs.part(PART, || ops.measure(progress, TIMEOUT));
        self.progress.end();
        let tables = match made {
            Ok(tables) => tables,
            Err(error) => {
                outln!("\n{HEADING}:\nfailed: {error}");
                return Ok(Some(failed("the kernel in QEMU")(&error)));
            }
        };
        if !self.args.tables {
            print(&tables);
        }
        self.add(HEADING, INTRO, tables)?;
        Ok(None)
    }
}

/// Prints rows alone.
fn print(tables: &[Table]) {
    outln!("\n{HEADING}");
    for table in tables {
        outln!("{}", table_text(&bare(table)).trim_end());
    }
    outln!("{SHORT}");
}

/// A table without remarks.
fn bare(table: &Table) -> Table {
    Table {
        footnotes: Vec::new(),
        ..table.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADING, INTRO, PART, SHORT, bare};
    use crate::commands::bench::vm::Ops;
    use crate::commands::reproduce::{report, section};
    use crate::outputs::{Outputs, Parts, State};
    use minflt_report::Table;
    use std::fs;

    fn tables() -> Vec<Table> {
        let printed = "op getppid 15000 1000\nop fork-exit-wait unsupported ENOSYS\n";
        Ops::new().tables_of(printed).expect("read")
    }

    #[test]
    fn the_page_has_the_rows_with_their_command_also_when_resumed() {
        let folder = std::env::temp_dir().join(format!("minflt-kernel-{}", std::process::id()));
        let _none_yet = fs::remove_dir_all(&folder);
        for (resume, made) in [(false, Some(tables())), (true, None)] {
            let parts = Parts::of(&folder, "", resume);
            let mut outputs = Outputs::open(&folder, None, report(), parts).expect("opened");
            assert_eq!(outputs.has_part(PART), resume);
            let tables = outputs.part(PART, || Ok(made.expect("made once")));
            let section = section(HEADING, INTRO, tables.expect("kept"));
            outputs.section(section).expect("written");
            outputs.finish(State::PartFailed).expect("finished");
            let page = fs::read_to_string(outputs.page()).expect("a page");
            for has in [
                "own page tables (the minflt kernel in QEMU)",
                "minflt bench kernel-ops --era linux-6.15",
                "getppid",
                "A part of this run failed",
            ] {
                assert!(page.contains(has), "{has}");
            }
        }
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn rows_alone_have_no_remarks_and_fit_a_terminal() {
        for table in tables() {
            assert!(!table.footnotes.is_empty());
            let text = bare(&table).to_text();
            assert!(!text.contains("QEMU:"), "{text}");
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        }
        assert!(HEADING.len() <= 100 && SHORT.len() <= 100);
    }
}

//! What the guest program printed, and tables of it.

use super::Subject;
use crate::commands::boot::lab::Side;
use crate::out::grouped;
use minflt_report::{Column, Table};

/// The most kernels in one table: wider ones are hard to read.
const COLUMNS: usize = 4;

/// What a line of the program says of an operation or a loop.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Said {
    /// Instructions an operation, or operations a second.
    Figure(f64),
    /// The kernel has no such system call.
    Unsupported,
}

/// All rounds of one kernel: by name, in the order in which they were printed.
#[derive(Clone, Default, Debug)]
pub(super) struct Samples(Vec<(String, Vec<Said>)>);

impl Samples {
    /// Adds what a round printed.
    ///
    /// # Errors
    /// A line that is no figure: an operation failed, or the program printed something else.
    pub(super) fn add(&mut self, printed: &str) -> Result<(), String> {
        for line in printed.lines().filter(|line| !line.is_empty()) {
            let (name, said) = read(line).ok_or_else(|| format!("bench printed: {line}"))?;
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(said),
                None => self.0.push((name, vec![said])),
            }
        }
        Ok(())
    }

    /// The figures of a name in order; none if the kernel cannot do it.
    fn figures(&self, name: &str) -> Vec<f64> {
        let all = self.0.iter().find(|(known, _)| known == name);
        let all = all.map_or(&[][..], |(_, all)| all);
        let figures = all.iter().filter_map(|said| match said {
            Said::Figure(figure) => Some(*figure),
            Said::Unsupported => None,
        });
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        figures
    }
}

/// A line of the program: `op NAME TOTAL COUNT`, `rate NAME THREADS OPS NS`, or that it is
/// unsupported.
fn read(line: &str) -> Option<(String, Said)> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["op", name, "unsupported", "ENOSYS"] => Some((name.into(), Said::Unsupported)),
        ["op", name, total, count] => {
            let figure = ratio(total, count)?;
            Some((name.into(), Said::Figure(figure)))
        }
        ["rate", name, threads, "unsupported", "ENOSYS"] => {
            Some((threaded(name, threads), Said::Unsupported))
        }
        ["rate", name, threads, ops, ns] => {
            let figure = ratio(ops, ns)? * 1e9;
            Some((threaded(name, threads), Said::Figure(figure)))
        }
        _ => None,
    }
}

fn threaded(name: &str, threads: &str) -> String {
    let s = if threads == "1" { "" } else { "s" };
    format!("{name}, {threads} thread{s}")
}

fn ratio(of: &str, by: &str) -> Option<f64> {
    let (of, by): (u64, u64) = (of.parse().ok()?, by.parse().ok()?);
    (by > 0).then(|| of as f64 / by as f64)
}

/// The middle one of sorted figures, or the mean of both.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(*upper);
    }
    let lower = sorted.get(middle.checked_sub(1)?)?;
    Some(f64::midpoint(*lower, *upper))
}

/// The tables of a subject: a row an operation, a column a kernel, and in the last table how the
/// last kernel of ours compares with the last Linux.
pub(super) fn tables(
    subject: Subject,
    sides: &[Side],
    samples: &[Samples],
    rounds: u32,
) -> Vec<Table> {
    let names: Vec<&str> = samples.first().map_or(Vec::new(), |first| {
        first.0.iter().map(|(name, _)| name.as_str()).collect()
    });
    let (title, unit, what) = match subject {
        Subject::Ops => ("Instructions an operation", "", "operation"),
        Subject::Rates => ("Operations a second", "1/s", "loop"),
    };
    let all: Vec<(&Side, &Samples)> = sides.iter().zip(samples).collect();
    let ours = all.iter().rfind(|(side, _)| !side.is_linux());
    let linux = all.iter().rfind(|(side, _)| side.is_linux());
    let chunks = all.chunks(COLUMNS);
    let last = chunks.len() - usize::from(!all.is_empty());
    let mut tables = Vec::new();
    for (at, chunk) in chunks.enumerate() {
        let mut columns = vec![Column::text(what)];
        columns.extend(
            chunk
                .iter()
                .map(|(side, _)| Column::number(&side.name, unit)),
        );
        let compared = ours.zip(linux).filter(|_| at == last);
        if let Some((ours, linux)) = compared {
            let name = format!("{} : {}", ours.0.name, linux.0.name);
            columns.push(Column::number(&name, ""));
        }
        let mut table = Table::new(if at == 0 { title } else { "" }, columns);
        for name in &names {
            let mut row = vec![(*name).into()];
            row.extend(
                chunk
                    .iter()
                    .map(|(_, samples)| cell(&samples.figures(name)).into()),
            );
            if let Some((ours, linux)) = compared {
                let ratio = median(&ours.1.figures(name))
                    .zip(median(&linux.1.figures(name)))
                    .filter(|(_, linux)| *linux > 0.0)
                    .map(|(ours, linux)| format!("{:.2}", ours / linux));
                row.push(ratio.unwrap_or_else(|| "-".into()).into());
            }
            table.rows.push(row);
        }
        tables.push(table);
    }
    if let Some(table) = tables.last_mut() {
        if rounds > 1 {
            table.footnotes.push(format!(
                "medians of {rounds} machines each, in turn, with the least and the greatest"
            ));
        }
        let missing = |samples: &Samples| names.iter().any(|name| samples.figures(name).is_empty());
        if samples.iter().any(missing) {
            let note = "-: the kernel has no such system call (ENOSYS)";
            table.footnotes.push(note.into());
        }
    }
    tables
}

/// The median, and the interval that it is from.
fn cell(sorted: &[f64]) -> String {
    let (Some(median), Some(first), Some(last)) = (median(sorted), sorted.first(), sorted.last())
    else {
        return "-".into();
    };
    if sorted.len() == 1 || grouped(*first) == grouped(*last) {
        return grouped(median);
    }
    format!(
        "{} ({}-{})",
        grouped(median),
        grouped(*first),
        grouped(*last)
    )
}

#[cfg(test)]
mod tests {
    use super::{Said, Samples, cell, median, read, tables};
    use crate::commands::bench::vm::Subject;
    use crate::commands::boot::lab::Side;

    #[test]
    fn lines_of_the_program_are_read() {
        let op = read("op getppid 1500 1000");
        assert_eq!(op, Some(("getppid".into(), Said::Figure(1.5))));
        let rate = read("rate mmap1 2 100 500000000");
        assert_eq!(rate, Some(("mmap1, 2 threads".into(), Said::Figure(200.0))));
        let none = read("op fork unsupported ENOSYS");
        assert_eq!(none, Some(("fork".into(), Said::Unsupported)));
        for line in [
            "op a failed errno 2",
            "op a 1 0",
            "op a x 1",
            "hello",
            "rate a 1 2",
        ] {
            assert_eq!(read(line), None, "{line}");
            assert!(Samples::default().add(line).is_err());
        }
    }

    #[test]
    fn medians_stand_with_their_interval() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0, 4.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!(cell(&[1000.0, 2000.0, 2500.0]), "2,000 (1,000-2,500)");
        assert_eq!((cell(&[7.0, 7.1]), cell(&[])), ("7".into(), "-".into()));
    }

    #[test]
    fn a_table_compares_the_last_of_ours_with_a_linux() {
        let sides: Vec<_> = ["a", "b", "c", "d", "e"].map(Side::minflt).into();
        let mut samples = vec![Samples::default(); 5];
        for (at, samples) in samples.iter_mut().enumerate() {
            samples
                .add(&format!("op x {at}00 10\nop y unsupported ENOSYS\n"))
                .expect("read");
        }
        let tables = tables(Subject::Ops, &sides, &samples, 1);
        let [first, second] = &tables[..] else {
            panic!("{tables:?}");
        };
        assert_eq!((first.columns.len(), second.columns.len()), (5, 2));
        assert_eq!(first.rows[0][2].text, "10");
        assert_eq!(second.rows[1][1].text, "-");
        assert!(second.footnotes[0].contains("ENOSYS"));
    }
}

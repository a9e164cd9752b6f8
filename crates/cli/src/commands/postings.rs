//! `minflt postings`: the published tables, and the check of their derived figures.

use crate::args::Postings;
use crate::error::{Error, failed, usage};
use crate::out::{out, outln, table_text};
use crate::words::did_you_mean;
use minflt_report::published::overview;
use minflt_report::verify::{checks_table, worst};
use minflt_report::{Outcome, postings, verify};

/// Runs the command.
pub(crate) fn run(args: &Postings) -> Result<(), Error> {
    let postings = postings().map_err(|error| failed("published data")(&error))?;
    if let Some(id) = &args.show {
        let tables = postings
            .iter()
            .flat_map(|posting| posting.tables.iter().chain(&posting.held_out));
        let table = tables
            .clone()
            .find(|table| table.id == *id)
            .ok_or_else(|| {
                let known: Vec<_> = tables.map(|table| table.id.as_str()).collect();
                usage(format!(
                    "--show: no table `{id}`; tables are {}{}",
                    known.join(", "),
                    did_you_mean(id, known)
                ))
            })?;
        out!("{}", table_text(&table.to_table()));
    } else if args.verify {
        let checks = verify(&postings);
        let wrong = [Outcome::Suspect, Outcome::Fail];
        out!("{}", table_text(&checks_table(&checks, &wrong)));
        let count = |outcome| {
            checks
                .iter()
                .filter(|check| check.outcome == outcome)
                .count()
        };
        outln!(
            "\n{} checks of the postings' own arithmetic: {} hold, {} known slips, {} fail",
            checks.len(),
            count(Outcome::Pass),
            count(Outcome::Suspect),
            count(Outcome::Fail)
        );
        if worst(&checks) == Outcome::Fail {
            return Err(Error::Failed(
                "published figures are inconsistent (see the list above)".into(),
            ));
        }
    } else {
        out!("{}", table_text(&overview(&postings)));
    }
    Ok(())
}

//! What there is: eras and workloads.

use crate::error::Error;
use crate::out::{out, outln};
use minflt_mm::config::{ExchangeBy, Ladder, Lifetime, Protocol, Rss};
use minflt_mm::{Config, ERAS};
use minflt_report::{Column, Table};

/// `minflt eras`.
pub(crate) fn eras() -> Result<(), Error> {
    out!("{}", era_table().to_text());
    outln!("\nbest is spf-2017.\n");
    out!("{}", choice_table().to_text());
    outln!();
    out!("{}", refused_table().to_text());
    Ok(())
}

/// The eras and their choices.
pub(crate) fn era_table() -> Table {
    let columns = ["era", "ladder", "protocol", "lifetime", "rss", "idea"].map(Column::text);
    let mut table = Table::new("Eras", columns);
    for era in ERAS {
        let config = era.config;
        table.rows.push(
            [
                era.name,
                config.ladder.name(),
                config.protocol.name(),
                config.lifetime.name(),
                config.rss.name(),
                era.idea,
            ]
            .map(Into::into)
            .into(),
        );
    }
    table
}

/// Every choice at every decision point.
pub(crate) fn choice_table() -> Table {
    let columns = ["decision point", "choice", "meaning"].map(Column::text);
    let mut table = Table::new("Choices", columns);
    let mut add = |what: &str, rows: &[(&str, &str)]| {
        for (name, meaning) in rows {
            table
                .rows
                .push([what, name, meaning.trim()].map(Into::into).into());
        }
    };
    macro_rules! point {
        ($($type:ty),+) => {$(
            let rows: Vec<_> = <$type>::ALL.iter().map(|(_, name, doc)| (*name, *doc)).collect();
            add(<$type>::WHAT, &rows);
        )+};
    }
    point!(Ladder, Protocol, ExchangeBy, Lifetime, Rss);
    table
}

/// The mixes that are refused.
pub(crate) fn refused_table() -> Table {
    let columns = ["refused mix", "reason", "instead"].map(Column::text);
    let mut table = Table::new("Refused", columns);
    for row in Config::illegal_mixes() {
        table
            .rows
            .push([row.mix, row.reason, row.remedy].map(Into::into).into());
    }
    table
}

/// `minflt workloads`.
pub(crate) fn workloads() -> Result<(), Error> {
    for info in minflt_workload::list() {
        outln!("{}: {}", info.name, info.about);
        for option in info.options {
            outln!(
                "    {:<22} {} [default: {}]",
                format!("{} {}", option.name, option.value),
                option.help,
                option.default
            );
        }
        for refused in info.refused {
            outln!("    {:<22} refused: {}", refused.name, refused.why);
        }
    }
    Ok(())
}

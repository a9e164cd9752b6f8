//! `minflt eras`, `formats` and `workloads`.

use super::kernels;
use crate::error::Error;
use crate::out::{out, outln, table_text};
use minflt_mm::config::{
    AddressSpace, AnonRmap, AnonVmaPreparation, Balancing, CpuMasks, ExchangeBy, FallbackOrder,
    FaultAround, FaultAroundAge, Hugetlb, Linking, Prefetch, Protocol, Reclamation, Rss,
    SleepingLocks, Unmap, Zones,
};
use minflt_mm::{Config, ERAS};
use minflt_pgtable::{About, AccessBits, BeforeInstall, ByteOrder, CasAbility, FORMATS};
use minflt_report::{Column, Table};

/// `minflt eras`.
pub(crate) fn eras() -> Result<(), Error> {
    out!("{}", table_text(&era_table()));
    outln!("\nbest is spf-2017.\n");
    out!("{}", table_text(&choice_table()));
    outln!();
    out!("{}", table_text(&refused_table()));
    outln!();
    out!("{}", table_text(&kernels::table()));
    Ok(())
}

/// The eras and their choices.
pub(crate) fn era_table() -> Table {
    let columns = [
        "era",
        "fallback order",
        "protocol",
        "reclamation",
        "rss",
        "sleeping locks",
        "unmap",
        "around",
        "anon rmap",
        "balancing",
        "hugetlb",
        "idea",
    ]
    .map(Column::text);
    let mut table = Table::new("Eras", columns);
    for era in ERAS {
        let config = era.config;
        table.rows.push(
            [
                era.name,
                config.fallback_order.name(),
                config.protocol.name(),
                config.reclamation.name(),
                config.rss.name(),
                config.sleeping_locks.name(),
                config.unmap.name(),
                config.around.name(),
                config.anon_rmap.name(),
                config.balancing.name(),
                config.hugetlb.name(),
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
    point!(
        FallbackOrder,
        Protocol,
        Linking,
        ExchangeBy,
        Reclamation,
        Rss,
        SleepingLocks,
        Unmap,
        AddressSpace,
        CpuMasks,
        FaultAround,
        FaultAroundAge,
        AnonRmap,
        AnonVmaPreparation,
        Balancing,
        Hugetlb,
        Prefetch,
        Zones
    );
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

/// `minflt formats`.
pub(crate) fn formats() -> Result<(), Error> {
    out!("{}", table_text(&format_table()));
    Ok(())
}

/// Every page-table format.
pub(crate) fn format_table() -> Table {
    let columns = [
        "format",
        "levels",
        "index bits",
        "page",
        "huge pages",
        "word",
        "user space",
        "accessed, dirty",
        "execute-only",
        "exchange",
        "before install",
        "manual",
    ];
    let mut table = Table::new("Formats", columns.map(Column::text));
    for about in FORMATS {
        let bits: Vec<_> = about
            .tree
            .iter()
            .rev()
            .map(|level| level.bits.to_string())
            .collect();
        let order = match about.bytes {
            ByteOrder::Little => "",
            ByteOrder::Big => ", big-endian",
        };
        let row = [
            about.id.to_string(),
            about.tree.len().to_string(),
            bits.join("/"),
            format!("{} KiB", (1u64 << about.page_shift) >> 10),
            huge_pages(about),
            format!("{} bits{order}", about.word_bits),
            below(about.user_end),
            who_sets_bits(about.caps.access_bits),
            match about.bits.execute_only() {
                true => "yes".to_string(),
                false => "-".to_string(),
            },
            who_exchanges(about.caps.cas),
            match about.caps.before_install {
                BeforeInstall::Nothing => "-".to_string(),
                BeforeInstall::FlushCaches => "flush caches".to_string(),
            },
            about.manual.to_string(),
        ];
        table
            .rows
            .push(row.iter().map(|text| text.as_str().into()).collect());
    }
    table
}

/// What entries above the leaves map.
fn huge_pages(about: &About) -> String {
    let top = about.huge.map_or(0, |huge| huge.top as usize);
    let bits = |level: &usize| -> u32 {
        let below = about.tree[..*level].iter().map(|level| level.bits);
        about.page_shift + below.sum::<u32>()
    };
    let size = |shift| match shift {
        30.. => format!("{} GiB", 1u64 << (shift - 30)),
        _ => format!("{} MiB", 1u64 << (shift - 20)),
    };
    match top {
        0 => "-".to_string(),
        _ => {
            let sizes: Vec<_> = (1..=top).map(|level| size(bits(&level))).collect();
            sizes.join(", ")
        }
    }
}

/// The end of user space, as a power of two or in GiB.
fn below(end: u64) -> String {
    if end.is_power_of_two() {
        format!("2^{}", end.trailing_zeros())
    } else {
        format!("{} GiB", end >> 30)
    }
}

fn who_sets_bits(bits: AccessBits) -> String {
    match bits {
        AccessBits::Hardware => "hardware".to_string(),
        AccessBits::Handler => "a handler, after a trap of its own".to_string(),
        AccessBits::Fault => "the fault".to_string(),
        AccessBits::ByCpu(feature) => format!("hardware with {feature}, else the fault"),
    }
}

fn who_exchanges(cas: CasAbility) -> String {
    match cas {
        CasAbility::Native => "native".to_string(),
        CasAbility::Emulated => "emulated".to_string(),
        CasAbility::ByCpu(feature) => format!("native with {feature}, else emulated"),
    }
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

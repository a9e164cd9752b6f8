//! Parses eras, sizes and counts of the command line; errors name the valid values.

use crate::args::Choices;
use crate::error::{Error, usage};
use crate::words::{did_you_mean, distinct};
use minflt_mm::config::{
    AddressSpace, AnonRmap, AnonVmaPreparation, Balancing, CpuMasks, ExchangeBy, FallbackOrder,
    FaultAround, FaultAroundAge, Hugetlb, Linking, Prefetch, Protocol, Reclamation, Rss,
    SleepingLocks, Unmap, Zones, eras_without_files, eras_without_migration,
};
use minflt_mm::{Config, ERAS, Era, era};
use minflt_workload::parse_size;

/// A configuration with the name it is shown by.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) config: Config,
}

/// The eras named in a list, with single choices changed.
pub(crate) fn eras(choices: &Choices) -> Result<Vec<Named>, Error> {
    asked_eras(&choices.era)?
        .into_iter()
        .map(|named| choices.apply(named))
        .collect()
}

/// The eras named in a list.
pub(crate) fn era_list(list: &str) -> Result<Vec<Named>, Error> {
    let one = |name: &str| {
        let found = era(name).ok_or_else(|| {
            let known: Vec<_> = ERAS.iter().map(|era| era.name).collect();
            usage(format!(
                "unknown era `{name}`; eras are {}, best{}",
                known.join(", "),
                did_you_mean(name, known.iter().copied().chain(["best"]))
            ))
        })?;
        Ok(named(found))
    };
    list.split(',').map(one).collect()
}

/// The eras that --era names, each once.
pub(crate) fn asked_eras(list: &str) -> Result<Vec<Named>, Error> {
    distinct("--era", list)?;
    era_list(list)
}

/// Every era.
pub(crate) fn all_eras() -> Vec<Named> {
    ERAS.iter().map(named).collect()
}

/// The eras that differ where there are no files and no page moves.
pub(crate) fn plain_eras() -> Vec<Named> {
    eras_without_files().map(named).collect()
}

/// The eras that differ where there are files and no page moves.
pub(crate) fn eras_of_one_node() -> Vec<Named> {
    eras_without_migration().map(named).collect()
}

fn named(era: &Era) -> Named {
    Named {
        name: era.name.to_string(),
        config: era.config,
    }
}

macro_rules! change {
    ($choice:expr, $named:expr, $field:ident: $type:ty) => {
        if let Some(word) = &$choice {
            let value = <$type>::parse(word).ok_or_else(|| {
                let known: Vec<_> = <$type>::ALL.iter().map(|(_, name, _)| *name).collect();
                usage(format!(
                    "unknown {} `{word}`; choices are {}{}",
                    <$type>::WHAT,
                    known.join(" | "),
                    did_you_mean(word, known)
                ))
            })?;
            if $named.config.$field != value {
                $named.config.$field = value;
                $named.name = format!("{} {}={value}", $named.name, <$type>::WHAT);
            }
        }
    };
}

impl Choices {
    fn apply(&self, mut named: Named) -> Result<Named, Error> {
        change!(self.fallback_order, named, fallback_order: FallbackOrder);
        change!(self.protocol, named, protocol: Protocol);
        named.config = named.config.with_protocol(named.config.protocol);
        change!(self.linking, named, linking: Linking);
        change!(self.exchange, named, exchange: ExchangeBy);
        change!(self.reclamation, named, reclamation: Reclamation);
        change!(self.rss, named, rss: Rss);
        change!(self.sleeping_locks, named, sleeping_locks: SleepingLocks);
        change!(self.unmap, named, unmap: Unmap);
        change!(self.address_space, named, address_space: AddressSpace);
        change!(self.cpu_masks, named, cpu_masks: CpuMasks);
        change!(self.fault_around_order, named, around: FaultAround);
        change!(self.fault_around_age, named, fault_around_age: FaultAroundAge);
        change!(self.anon_rmap, named, anon_rmap: AnonRmap);
        change!(self.anon_vma_preparation, named, anon_vma_preparation: AnonVmaPreparation);
        change!(self.numa_balancing, named, balancing: Balancing);
        change!(self.hugetlb, named, hugetlb: Hugetlb);
        change!(self.prefetch, named, prefetch: Prefetch);
        change!(self.zones, named, zones: Zones);
        let refuse = |illegal| usage(format!("{}: refused: {illegal}", named.name));
        named.config.check().map_err(refuse)?;
        Ok(named)
    }
}

/// A list of counts of at least 1.
pub(crate) fn counts(option: &str, list: &str) -> Result<Vec<u32>, Error> {
    let one = |word: &str| match word.parse() {
        Ok(0) | Err(_) => Err(usage(format!(
            "{option}: invalid count `{word}`: expected positive integers, such as 1,2,4"
        ))),
        Ok(count) => Ok(count),
    };
    distinct(option, list)?;
    list.split(',').map(one).collect()
}

/// A size in bytes.
pub(crate) fn size(option: &str, word: &str) -> Result<u64, Error> {
    parse_size(word).map_err(|error| usage(format!("{option}: {error}")))
}

/// A size as the command line spells it.
pub(crate) fn spell(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units
        .iter()
        .find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{counts, era_list, eras, size, spell};
    use crate::args::Choices;
    use insta::assert_snapshot;

    fn refused<T: core::fmt::Debug>(result: Result<T, crate::error::Error>) -> String {
        result.expect_err("refused").to_string()
    }

    fn choices(era: &str) -> Choices {
        Choices {
            era: era.into(),
            ..Choices::default()
        }
    }

    #[test]
    fn each_wrong_word_gets_one_line_that_says_what_is_right() {
        assert_snapshot!(refused(era_list("linux-9.9")), @"unknown era `linux-9.9`; eras are linux-2.6.10, atomic-pte-2004, linux-3.7, numa-balancing-2012, anon-vma-2012, linux-3.14, fault-around-2014, linux-4.13, spf-2017, linux-5.19, hugetlb-vma-lock-2022, linux-6.4, linux-6.15, minflt, best");
        let wrong = Choices {
            rss: Some("exact".into()),
            ..choices("best")
        };
        assert_snapshot!(refused(eras(&wrong)), @"unknown rss `exact`; choices are under-lock | atomic | sloppy | per-thread | per-cpu");
        assert_snapshot!(refused(counts("--threads", "1,x")), @"--threads: invalid count `x`: expected positive integers, such as 1,2,4");
        assert_snapshot!(refused(counts("--threads", "0")), @"--threads: invalid count `0`: expected positive integers, such as 1,2,4");
        assert!(refused(size("--ram", "12Q")).starts_with("--ram: "));
    }

    #[test]
    fn an_unsound_mix_is_refused_with_the_tables_reason() {
        let mix = Choices {
            protocol: Some("compare-exchange".into()),
            ..choices("spf-2017")
        };
        assert_snapshot!(refused(eras(&mix)), @"spf-2017 protocol=compare-exchange: refused: fallback-order speculative with protocol compare-exchange: the sequence check and the exchange are not atomic, so munmap can free the page table between them; use protocol table-lock or mm-lock: the fault trylocks and then revalidates");
        let mix = Choices {
            rss: Some("under-lock".into()),
            ..choices("linux-4.13")
        };
        assert_snapshot!(refused(eras(&mix)), @"linux-4.13 rss=under-lock: refused: rss under-lock without protocol mm-lock: no single lock covers the counter updates of all faults; use rss atomic, sloppy, per-thread or per-cpu");
    }

    #[test]
    fn a_choice_that_is_the_eras_own_changes_no_name() {
        let same = Choices {
            rss: Some("sloppy".into()),
            ..choices("atomic-pte-2004")
        };
        assert_eq!(eras(&same).expect("legal")[0].name, "atomic-pte-2004");
        assert_eq!(spell(3 << 30), "3G");
        assert_eq!(spell(4097), "4097");
    }
}

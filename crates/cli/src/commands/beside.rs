//! The posting's rows beside a bench's runs of them: `pft` on the machine that stands for its own.

use crate::commands::reproduce::tables::pft_beside_ours;
use crate::error::{Error, failed};
use crate::experiment::{PFT_SCALED, Ran, is_pft_machine, pft_ram};
use minflt_report::{Posting, PublishedTable, Table, postings};
use minflt_sim::MachineFile;
use minflt_workload::pft::{Definition, Pft};

/// The posting whose benchmark is run on its machine.
#[derive(Debug)]
pub(crate) struct Beside {
    posting: Posting,
    pft: Pft,
    file: MachineFile,
}

impl Beside {
    /// Of this benchmark on the machine `file`, if a posting ran it there.
    ///
    /// # Errors
    /// When the published data is not as it should be.
    pub(crate) fn of(pft: &Pft, file: &MachineFile) -> Result<Option<Self>, Error> {
        let all = postings().map_err(|error| failed("published data")(&error))?;
        let posting = all.into_iter().find(|it| is_pft_machine(it, file));
        let posting = posting.filter(|_| pft.definition == Definition::Process);
        Ok(posting.map(|posting| Self {
            posting,
            pft: pft.clone(),
            file: file.clone(),
        }))
    }

    /// The RAM in which memory is as scarce as in the posting, if that much is touched.
    pub(crate) fn ram(&self) -> u64 {
        pft_ram(&self.file, self.pft.bytes)
    }

    /// The published row that `ran` is a run of.
    fn row(&self, ran: &Ran) -> Option<(&PublishedTable, usize)> {
        let run = &ran.run;
        if !run.simulated || run.machine != self.file.name || run.cpus != run.threads {
            return None;
        }
        let is_of_era = |table: &&PublishedTable| table.era.as_ref() == Some(&run.era);
        let table = self.posting.tables.iter().find(is_of_era)?;
        let threads = f64::from(run.threads);
        let is_row = |row: &usize| {
            let cell = table.row_param(*row, "threads");
            cell.and_then(|cell| cell.value) == Some(threads)
        };
        Some((table, (0..table.rows.len()).find(is_row)?))
    }

    /// The row as it was printed, under the same title as that of `ran`.
    pub(crate) fn printed(&self, ran: &Ran) -> Option<String> {
        let (table, row) = self.row(ran)?;
        let cells = table.rows.get(row)?.iter();
        // As wide as the original's columns.
        let line = cells.zip([3, 3, 4, 9, 11, 8, 9, 10]);
        let line = line.map(|(cell, wide)| format!("{:>wide$}", cell.printed));
        let line = line.collect::<Vec<_>>().join(" ");
        Some(format!("{line}   published, {}", table.id))
    }

    /// The published tables beside the runs of their rows, in which the machine had `ram` bytes.
    pub(crate) fn tables(&self, done: &[Ran], ram: u64) -> Vec<Table> {
        let as_scarce = ram == self.ram() && self.pft.bytes >= PFT_SCALED;
        let fitted = self.file.is_fitted() && as_scarce;
        let tables = self.posting.tables.iter().filter_map(|table| {
            let row = |ran: &'_ Ran| self.row(ran).filter(|(of, _)| of.id == table.id);
            let rows = done.iter().filter_map(|ran| Some((row(ran)?.1, ran)));
            let rows: Vec<_> = rows.collect();
            (!rows.is_empty()).then(|| pft_beside_ours(table, &rows, fitted))
        });
        let mib = |bytes: u64| bytes >> 20;
        let scarce = if as_scarce {
            "as scarce as there"
        } else {
            "less or more scarce than there, so nothing is fitted or predicted"
        };
        let note = format!(
            "simulated: {} MiB, repetitions: {}, in {} MiB of RAM, {scarce}",
            mib(self.pft.bytes),
            self.pft.repetitions,
            mib(ram)
        );
        let noted = |mut table: Table| {
            table.footnotes.push(note.clone());
            table
        };
        tables.map(noted).collect()
    }
}

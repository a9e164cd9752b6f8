//! `status`: the sizes of an address space.

use super::kib;
use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::mm::Mm;
use core::fmt::{self, Write};
use minflt_pgtable::{Mmu, Paging};

/// Pages by the kind of their mappings.
#[derive(Clone, Copy, Default)]
struct Kinds {
    locked: u64,
    data: u64,
    stack: u64,
    code: u64,
}

impl Kinds {
    /// Linux: is_stack_mapping, is_data_mapping, is_exec_mapping.
    fn add<P: Paging>(&mut self, view: &VmaView) {
        let pages = view.range.pages(P::shift());
        if view.flags.has(VmaFlags::LOCKED) {
            self.locked += pages;
        }
        if view.flags.has(VmaFlags::GROWS_DOWN) {
            self.stack += pages;
        } else if view.prot.has(Prot::WRITE) {
            self.data += pages;
        } else if view.prot.has(Prot::EXEC) {
            self.code += pages;
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// Writes the lines about memory of `/proc/PID/status`: those of Linux's fields that are kept.
    ///
    /// # Context
    /// As [`Mm::maps`].
    ///
    /// # Errors
    /// Those of `out`.
    pub fn status(&self, out: &mut impl Write) -> fmt::Result {
        let mut kinds = Kinds::default();
        // Resident pages are kept as one number: those of files are counted here, as are those that
        // are swapped out.
        let (mut files, mut swapped) = (0, 0);
        self.each_line(|line| {
            kinds.add::<M::Paging>(&line.view);
            if line.view.file.is_file() || self.system().swap.exists() {
                let counts = self.count_pages(line.view.range);
                files += counts.of_files();
                swapped += counts.swapped();
            }
            Ok(())
        })?;
        let resident = self.resident_pages_sum().max(0).unsigned_abs();
        let fields = [
            ("VmPeak", self.peak_mapped_pages()),
            ("VmSize", self.mapped_pages()),
            ("VmLck", kinds.locked),
            ("VmPin", self.pins.count()),
            ("VmRSS", resident),
            ("RssAnon", resident.saturating_sub(files)),
            ("RssFile", files),
            ("VmData", kinds.data),
            ("VmStk", kinds.stack),
            ("VmLib", kinds.code),
            ("VmSwap", swapped),
        ];
        for (name, pages) in fields {
            writeln!(out, "{name}:\t{:>8} kB", kib::<M>(pages))?;
        }
        Ok(())
    }
}

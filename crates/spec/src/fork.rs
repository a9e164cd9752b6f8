//! fork.

use crate::space::Space;
use crate::vma::Flags;

impl Space {
    /// The address space of a forked child. The parent's is as it was. Linux: kernel/fork.c
    /// dup_mmap.
    ///
    /// The files are common: only one of the two may run, and [`Self::join`] ends the child.
    pub fn fork(&mut self) -> Self {
        let mut child = self.clone();
        child.future = Flags::NONE;
        child.locked_pages = 0;
        child.outside_locked = false;
        child.vmas.retain(|vma| !vma.flags.has(Flags::DONTCOPY));
        child.pages.clear();
        child.protected.clear();
        for file in &mut child.files {
            file.shortest = file.bytes();
        }
        for vma in &mut child.vmas {
            vma.flags = vma.flags.without(Flags::LOCKS.with(Flags::UFFD));
            if vma.flags.has(Flags::WIPEONFORK) {
                vma.anon = None;
                vma.forked = false;
            }
            // Where nothing was stored there are at most zero pages, which come again.
            if vma.anon.is_some() {
                let pages = vma.start / crate::PAGE..vma.end / crate::PAGE;
                child.pages.extend(self.pages.range(pages));
                vma.anon = Some(child.next_anon);
                vma.forked = true;
            }
            child.next_anon += 1;
        }
        if self.has_huge_pages() {
            self.fork_huge(&mut child);
        }
        child
    }
}

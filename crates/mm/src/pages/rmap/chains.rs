//! `anon_vma_chain`: links of VMAs to their anon_vmas; cloned by split and fork, removed by munmap
//! and exit.

use super::anon_vma::{Chain, address, chain_at, chains_of};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::mm::Mm;
use crate::space::vma::Vma;
use crate::system::System;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

impl<M: Mmu> System<M> {
    /// Chains `new`, a mapping of `mm`, to every anon_vma that `old` is chained to. Under
    /// `mmap_lock` for writing, and `new` is in no tree yet.
    ///
    /// Where `new` has no anon_vma of its own (a fork), one that nobody owns any more becomes it.
    ///
    /// # Errors
    /// No memory; `new` then is chained to nothing.
    fn clone_chains(&self, mm: &Mm<M>, new: &Vma<M>, old: &Vma<M>) -> Result<(), NoMemory> {
        let view = new.view();
        let Some(first) = chains_of(old).next() else {
            return Ok(());
        };
        let tree = first.anon_vma().root().lock.write();
        let mut newest: Option<&Chain<M>> = None;
        let mut failed = false;
        for from in chains_of(old) {
            let Ok(chain) = self.new_chain(mm, new, from.anon_vma()) else {
                failed = true;
                break;
            };
            from.anon_vma().link(chain, &view);
            let place = newest.map_or(&new.chain, |newer| &newer.older);
            place.store(address(chain), Ordering::Relaxed);
            newest = Some(chain);
            let unowned = new.anon_vma.load(Ordering::Relaxed) == 0;
            if unowned && from.anon_vma().reusable(old, &self.config) {
                new.anon_vma
                    .store(address(from.anon_vma()), Ordering::Relaxed);
            }
        }
        if failed {
            new.anon_vma.store(0, Ordering::Relaxed);
        } else if let Some(own) = new.own_anon_vma() {
            own.active.add(1, Ordering::Relaxed);
        }
        drop(tree);
        if failed {
            self.unlink_anon_vmas(new);
            return Err(NoMemory);
        }
        Ok(())
    }

    /// Chains `new`, which is chained to nothing, as `old` is: the new part of a split mapping, a
    /// copy, or a mapping that takes pages of a neighbour over. Under `mmap_lock` for writing, with
    /// a section open on `new` if it is in the tree.
    ///
    /// Linux: anon_vma_clone, dup_anon_vma.
    ///
    /// # Errors
    /// No memory; `new` then is chained to nothing.
    pub(crate) fn split_anon_vma(
        &self,
        mm: &Mm<M>,
        new: &Vma<M>,
        old: &Vma<M>,
    ) -> Result<(), NoMemory> {
        let own = old.anon_vma.load(Ordering::Relaxed);
        new.anon_vma.store(own, Ordering::Relaxed);
        self.clone_chains(mm, new, old)
    }

    /// Chains `child`, a forked mapping of `mm`: to all its parent is chained to, and to an
    /// anon_vma of its own.
    /// Under the parent's `mmap_lock` for writing.
    ///
    /// Linux: anon_vma_fork.
    ///
    /// # Errors
    /// No memory; `child` then is chained to nothing.
    pub(crate) fn fork_anon_vma(
        &self,
        mm: &Mm<M>,
        child: &Vma<M>,
        parent: &Vma<M>,
    ) -> Result<(), NoMemory> {
        let Some(parents) = parent.own_anon_vma() else {
            return Ok(());
        };
        self.clone_chains(mm, child, parent)?;
        if child.anon_vma.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let made = self.new_anon_vma(Some(parents)).and_then(|own| {
            let chain = self.new_chain(mm, child, own);
            let chain = chain.inspect_err(|_| self.discard_anon_vma(NonNull::from(own)))?;
            Ok((own, chain))
        });
        let (own, chain) = made.inspect_err(|_| self.unlink_anon_vmas(child))?;
        let _tree = parents.root().lock.write();
        let older = child.chain.load(Ordering::Relaxed);
        chain.older.store(older, Ordering::Relaxed);
        child.chain.store(address(chain), Ordering::Relaxed);
        child.anon_vma.store(address(own), Ordering::Relaxed);
        own.link(chain, &child.view());
        own.active.add(1, Ordering::Relaxed);
        parents.children.add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Unchains a mapping whose pages are gone. Under `mmap_lock` for writing; or it is detached,
    /// or nobody else has the address space.
    ///
    /// Linux: unlink_anon_vmas.
    pub(crate) fn unlink_anon_vmas(&self, vma: &Vma<M>) {
        let Some(first) = chain_at::<M>(vma.chain.load(Ordering::Relaxed)) else {
            return;
        };
        if self.lacks(NegativeControl::ChainsStay) {
            return;
        }
        // The root outlives its lock's being let go, though somebody else may by then have taken
        // the last link of all.
        let root = first.anon_vma().hold_root();
        {
            let _tree = first.anon_vma().root().lock.write();
            for chain in chains_of(vma) {
                let anon_vma = chain.anon_vma();
                anon_vma.spans.remove(&chain.span);
                let last = anon_vma.spans.is_empty();
                chain.last.store(u64::from(last), Ordering::Relaxed);
                if last {
                    anon_vma.parent().children.sub(1, Ordering::Relaxed);
                }
            }
            if let Some(own) = vma.own_anon_vma() {
                own.active.sub(1, Ordering::Relaxed);
            }
        }
        vma.anon_vma.store(0, Ordering::Relaxed);
        // Nobody finds an anon_vma without links, so what this mapping emptied is its to free,
        // behind the lock, which may be in it.
        self.discard_chains(vma);
        self.discard_anon_vma(root);
    }
}

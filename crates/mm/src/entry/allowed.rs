//! What mprotect makes of entries, of pages of all sizes.

use crate::base::attrs::Prot;
use crate::base::config::NegativeControl;
use crate::system::System;
use minflt_pgtable::{Exec, Grant, Mmu, Paging, Pte};

/// What entries of a range may grant.
#[derive(Clone, Copy)]
pub(crate) struct Allowed {
    grant: Grant,
    exec: Exec,
    /// Whether CPUs lose translations whose right to fetch or to load is taken; a control lets them
    /// keep it.
    flushes_rights: bool,
}

impl Allowed {
    /// What they may under `prot`.
    pub(crate) fn by<M: Mmu>(sys: &System<M>, prot: Prot) -> Self {
        Self {
            grant: prot.grant(),
            exec: prot.exec::<M::Paging>(),
            flushes_rights: !sys.lacks(NegativeControl::FetchWithoutFlush),
        }
    }

    fn lowered(self, old: Grant) -> Grant {
        match self.grant {
            Grant::Nothing => Grant::Nothing,
            // What was read-only before may be read-only for a reason of its own: the next store
            // finds out.
            Grant::Read | Grant::Write => old.min(self.grant).max(Grant::Read),
        }
    }

    /// What becomes of an entry that maps a page, or may; nothing where it stays.
    pub(crate) fn of_mapped<P: Paging>(self, pte: Pte<P>) -> Option<Pte<P>> {
        let grant = self.lowered(pte.grant());
        // The same grant again may be written in other bits, where hardware wrote some.
        let lowered = if grant == pte.grant() {
            pte
        } else {
            pte.with_grant(grant)
        };
        let new = lowered.with_exec(self.exec);
        (pte.is_mapped() && new != pte).then_some(new)
    }

    /// The same of a migration entry.
    pub(crate) fn of_moving<P: Paging>(self, pte: Pte<P>) -> Option<Pte<P>> {
        let grant = self.lowered(pte.grant_later());
        let new = pte.granting_later(grant).with_exec(self.exec);
        (new != pte).then_some(new)
    }

    /// Whether CPUs may have translations of `old` that serve what is no longer allowed.
    pub(crate) fn takes_from<P: Paging>(self, old: Pte<P>) -> bool {
        let fetches = old.is_exec() && self.exec == Exec::No;
        let loads = P::bits().execute_only() && old.is_loadable() && self.exec == Exec::Only;
        let rights = old.is_present() && (fetches || loads);
        old.grant() > self.grant || rights && self.flushes_rights
    }
}

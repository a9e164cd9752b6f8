//! mremap of hugetlb mappings: see [`crate::pages::hugetlb`].

use super::{Done, Plan, Remap, mapped_at};
use crate::base::attrs::VmaView;
use crate::base::error::{MremapError, NoMemory};
use crate::change::modify::{add_vma, nothing, split_huge};
use crate::change::unmap::{free_tables, unmap_range};
use crate::change::writers::{Afterwards, Writers};
use crate::entry::zap::Zap;
use crate::memory::commit::Pages;
use crate::mm::Mm;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

impl<M: Mmu> Mm<M> {
    /// Makes a mapping of huge pages shorter, or moves it, or a part of it.
    ///
    /// Linux: check_prep_vma, for `is_vm_hugetlb_page`.
    pub(super) fn remap_huge(
        &self,
        writers: &Writers<'_, M>,
        plan: &Plan,
    ) -> Result<Done, MremapError> {
        let unit = mapped_at(writers.held(), plan.old)?.view().huge_size();
        let up = |len| VirtAddr(len).align_up(unit.shift::<M::Paging>());
        let (Some(old), Some(new)) = (up(plan.old_len), up(plan.new_len)) else {
            return Err(MremapError::Invalid);
        };
        let plan = Plan {
            old_len: old.0,
            new_len: new.0,
            ..*plan
        };
        plan.check::<M>()?;
        let aligned = |at: VirtAddr| unit.is_aligned::<M::Paging>(at);
        let to = plan.how.target();
        let unaligned = !aligned(plan.old) || to.is_some_and(|to| !aligned(to));
        // One that stays behind without its pages, or is mapped twice, is not had.
        if unaligned || plan.grows() || plan.how.keeps_old() || plan.old_len == 0 {
            return Err(MremapError::Invalid);
        }
        let view = mapped_at(writers.held(), plan.old)?.view();
        if plan.new_len > view.range.end().0 - plan.old.0 {
            return Err(MremapError::Fault);
        }
        let (Some(to), Remap::Fixed(_)) = (to, plan.how) else {
            if plan.shrinks() {
                self.cut_tail(writers, &plan, Afterwards::LetsGo)?;
            }
            return Ok(Done {
                at: plan.old,
                more: None,
            });
        };
        let target = VirtRange::new(to, VirtAddr(to.0 + plan.new_len));
        self.unmap_whole(writers, target, Afterwards::Writes)?;
        if plan.shrinks() {
            self.cut_tail(writers, &plan, Afterwards::Writes)?;
        }
        if to < Self::user_range().start() {
            return Err(MremapError::NotPermitted);
        }
        self.move_huge_vma(writers, plan.old, target)?;
        Ok(Done { at: to, more: None })
    }

    /// Moves as much as `target` has room for, which is free, from `at` there.
    fn move_huge_vma(
        &self,
        writers: &Writers<'_, M>,
        at: VirtAddr,
        target: VirtRange,
    ) -> Result<(), NoMemory> {
        let end = VirtAddr(at.0 + target.len());
        split_huge(writers, at)?;
        split_huge(writers, end)?;
        let vma = writers.held().find(at).ok_or(NoMemory)?;
        let old = vma.view();
        let new = VmaView {
            range: target,
            ..old
        };
        let free_room = |_: &NoMemory| {
            let mut zap = Zap::begin(writers.held().tables(), target);
            free_tables(writers.held(), target, &mut zap);
            zap.finish();
        };
        writers
            .held()
            .make_huge_room(&old, target.start())
            .inspect_err(free_room)?;
        // Planned before, so that nothing fails once the pages are moved.
        let ensured = writers.ensure(Some(target), 1, 1);
        let ensured = ensured.inspect_err(free_room)?;
        let added = add_vma(writers, &new, nothing(), Some(vma.into()));
        let added = added.inspect_err(free_room)?;
        let section = writers.begin(vma);
        writers.held().move_huge(vma, &old, target.start());
        vma.forget_own();
        self.count_mapped(Pages::of::<M>(&new));
        // Were there no memory after all, the old place would stay mapped, with nothing in it.
        let _gone = unmap_range(writers, old.range, Some(section), Afterwards::Writes);
        drop(ensured);
        drop(added);
        Ok(())
    }
}

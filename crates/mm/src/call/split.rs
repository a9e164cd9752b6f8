//! Splitting a VMA in two.
//!
//! ```text
//! before   VVVVVVVVVV          V keeps its identity and its lower part
//! after    VVVVNNNNNN          N is new
//! ```
//! All memory is had before the first change. N is put into the tree while V still covers its
//! part, so a lookup finds one or the other at every moment; V's section tells speculation about
//! it.

use crate::error::NoMemory;
use crate::mm::Mm;
use crate::vma::{Attrs, Vma, VmaView};
use crate::writers::Writers;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

/// A new VMA, in no tree.
pub(super) fn new_vma<M: Mmu>(mm: &Mm<M>, view: VmaView) -> Result<NonNull<Vma<M>>, NoMemory> {
    let sys = mm.system();
    let plain = view.is_plain::<M::Paging>();
    let attrs = (!plain).then(|| new_attrs(mm, view)).transpose()?;
    let vma = sys.vmas.alloc(Vma::new(sys.new_id(), view), sys);
    match (vma, attrs) {
        (Ok(vma), None) => Ok(vma),
        (Ok(vma), Some(attrs)) => {
            // SAFETY: allocated above; nobody else has it.
            unsafe { vma.as_ref() }.publish(attrs);
            Ok(vma)
        }
        (Err(_), attrs) => {
            // SAFETY: 1, 2: allocated above, never published.
            attrs
                .into_iter()
                .for_each(|it| unsafe { sys.attrs.free(it) });
            Err(NoMemory)
        }
    }
}

/// A new record, published nowhere.
pub(super) fn new_attrs<M: Mmu>(mm: &Mm<M>, view: VmaView) -> Result<NonNull<Attrs>, NoMemory> {
    let sys = mm.system();
    sys.attrs.alloc(Attrs::new(view), sys).map_err(|_| NoMemory)
}

/// Frees a VMA that was never published.
pub(super) fn discard_vma<M: Mmu>(mm: &Mm<M>, vma: NonNull<Vma<M>>) {
    let sys = mm.system();
    // SAFETY: nobody else has it.
    sys.unlink_anon_vmas(unsafe { vma.as_ref() });
    // SAFETY: nobody else has it.
    if let Some(attrs) = unsafe { vma.as_ref() }.attrs_ptr() {
        // SAFETY: 1, 2: nobody else has it.
        unsafe { sys.attrs.free(attrs) };
    }
    // SAFETY: 1, 2: nobody else has it.
    unsafe { sys.vmas.free(vma) };
}

/// Replaces a VMA's record, inside the caller's section.
pub(super) fn publish<M: Mmu>(mm: &Mm<M>, vma: &Vma<M>, attrs: NonNull<Attrs>) {
    let old = vma.publish(attrs);
    mm.tree.changed(vma.view());
    if let Some(old) = old {
        // SAFETY: 1: unlinked by the line before.
        unsafe { mm.system().retire_attrs(old) };
    }
}

/// Splits the VMA that covers `at`, if one does and does not start there.
pub(super) fn split_at<M: Mmu>(
    mm: &Mm<M>,
    writers: &Writers<'_, M>,
    at: VirtAddr,
) -> Result<(), NoMemory> {
    // SAFETY: 1: under `mmap_lock`.
    let Some(vma) = (unsafe { mm.tree.at_or_before(at) }) else {
        return Ok(());
    };
    let view = vma.view();
    if view.range.start() == at || view.range.end() <= at {
        return Ok(());
    }
    let lower = view.of_range::<M::Paging>(VirtRange::new(view.range.start(), at));
    let upper = view.of_range::<M::Paging>(VirtRange::new(at, view.range.end()));
    let attrs = new_attrs(mm, lower)?;
    let new = new_vma(mm, upper).inspect_err(|_| {
        // SAFETY: 1, 2: allocated above, never published.
        unsafe { mm.system().attrs.free(attrs) };
    })?;
    let section = writers.begin(vma);
    // SAFETY: allocated above; nobody else has it.
    let chained = mm.system().split_anon_vma(unsafe { new.as_ref() }, vma);
    let put_in = chained.and_then(|()| writers.insert(at, new));
    if put_in.is_err() {
        drop(section);
        discard_vma(mm, new);
        // SAFETY: 1, 2: allocated above, never published.
        unsafe { mm.system().attrs.free(attrs) };
        return Err(NoMemory);
    }
    publish(mm, vma, attrs);
    Ok(())
}

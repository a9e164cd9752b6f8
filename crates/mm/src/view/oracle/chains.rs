//! Ledger checks of `anon_vma_chain` links and anon_vma trees.
//!
//! # Problem
//! In a chain of forks each mapping is linked to the anon_vmas of all its ancestors: `n` processes
//! have `n * n / 2` links. Checking the tree of each anon_vma for each of its links would take the
//! cube of that.
//!
//! # Idea
//! A tree is checked by the mapping whose span is its root, of which there is one. A tree that no
//! mapping is the root of is not looked at, and then the spans found are fewer than the links.
//!
//! So it takes a step for each link, one for each span of a tree, and for a page whose anon_vma is
//! not the one of the page before, a walk of the mapping's links.

use crate::pages::rmap::anon_vma::{LinkSeen, each_link};
use crate::space::vma::Vma;
use minflt_pgtable::Mmu;

/// What was seen of them.
#[derive(Clone, Copy, Default)]
pub(super) struct ChainsSeen {
    /// Links of mappings.
    pub(super) links: u64,
    /// Spans in trees of anon_vmas.
    pub(super) spans: u64,
    /// Steps that it took.
    pub(super) steps: u64,
}

/// The anon_vma that a mapping was found to be linked to last, both by their addresses.
#[derive(Clone, Copy, Default)]
pub(super) struct LastLinked {
    vma: usize,
    anon_vma: u64,
}

impl ChainsSeen {
    pub(super) fn add(&mut self, other: &Self) {
        self.links += other.links;
        self.spans += other.spans;
        self.steps += other.steps;
    }

    /// Whether the spans of a mapping say what its record says, and the trees that they are the
    /// roots of are in order; or else what is wrong.
    pub(super) fn add_mapping<M: Mmu>(&mut self, vma: &Vma<M>) -> Result<(), &'static str> {
        let view = vma.peek();
        let mut wrong = None;
        each_link(vma, |link| {
            self.links += 1;
            self.steps += 1;
            if !link.agrees(&view) {
                wrong = Some("a mapping of anonymous memory is not where its span says");
            }
            match link.validate_tree() {
                Ok(spans) => {
                    self.spans += spans;
                    self.steps += spans;
                }
                Err(why) => wrong = Some(why),
            }
            true
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Whether a mapping is linked to the anon_vma at an address.
    pub(super) fn is_linked<M: Mmu>(
        &mut self,
        last: &mut LastLinked,
        vma: &Vma<M>,
        anon_vma: u64,
    ) -> bool {
        let address = core::ptr::from_ref(vma).addr();
        if last.vma == address && last.anon_vma == anon_vma {
            return true;
        }
        let mut found = false;
        each_link(vma, |link: LinkSeen<'_, M>| {
            self.steps += 1;
            found = link.is_to(anon_vma);
            !found
        });
        if found {
            *last = LastLinked {
                vma: address,
                anon_vma,
            };
        }
        found
    }

    /// Whether each span is some mapping's, and the steps that it all took: asked once all mappings
    /// were seen.
    pub(super) fn add_up(&self) -> Result<u64, &'static str> {
        if self.spans == self.links {
            Ok(self.steps)
        } else {
            Err("links to anon_vmas and spans in their trees are not as many")
        }
    }
}

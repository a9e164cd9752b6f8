//! mbind, set_mempolicy, get_mempolicy: NUMA memory policies.
//!
//! # Problem
//! A page is fast for the CPUs of its node. A program that knows which CPUs will use its memory can
//! state it: for a part of an address space, or for all pages that a thread touches first.
//!
//! # Idea
//! A policy is a value: in a VMA's attributes, or in a thread. A fault that allocates a frame uses
//! the mapping's policy, or the thread's where the mapping has none ([`crate::memory::alloc`]).
//!
//! # Protocol
//! mbind: `mmap_lock` for writing; for each VMA a write section, in which its attributes change. A
//! thread's policy is private to it.
//!
//! # Why it is correct
//! A fault reads the policy with the other attributes, so it never sees a half-changed one; and it
//! opens its PTE only if the attributes are unchanged, or under the VMA lock: no fault that runs on
//! after mbind returned allocates by the old policy (P35). A speculative fault that had opened its
//! PTE may install such a page a moment later; mbind does not wait for it, since existing pages
//! stay where they are in any case. A policy owns no memory.
//!
//! # Cost
//! A fault without policies: one branch. With one: a zone's lock for each frame.
//!
//! Linux: mm/mempolicy.c do_mbind, do_set_mempolicy, do_get_mempolicy (v6.18), which lists the
//! pages to migrate before the policy changes; here they are looked up afterwards, under
//! `mmap_lock` for reading ([`super::move_pages`]).

use super::move_pages::Which;
use super::page_range;
use crate::base::attrs::{Prot, VmaView};
use crate::base::error::{MempolicyError, NoMemory};
use crate::base::event::Event;
use crate::base::policy::{NodeMask, Policy, PolicyMode};
use crate::call::thread::Thread;
use crate::change::modify::modify;
use crate::change::writers::Writers;
use crate::fault::FaultOutcome;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use crate::system::System;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Access, Mmu, Paging, Pte};

/// What pages mean to mbind that are elsewhere than the policy has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misplaced {
    /// They stay where they are.
    Stay,
    /// They refuse the policy (`MPOL_MF_STRICT`).
    Refuse,
    /// They are moved (`MPOL_MF_MOVE`, `MPOL_MF_MOVE_ALL`), if that is possible.
    Move(Which),
    /// They are moved; where one cannot be, the call fails although the policy holds (the same with
    /// `MPOL_MF_STRICT`).
    MoveOrFail(Which),
}

impl<M: Mmu> System<M> {
    /// The nodes that memory can be taken from (`MPOL_F_MEMS_ALLOWED`); of more than
    /// [`NodeMask::MOST`] the first ones.
    #[must_use]
    pub fn allowed_nodes(&self) -> NodeMask {
        self.frames.all_nodes()
    }

    /// The policy as it is kept: with the nodes there are.
    ///
    /// # Errors
    /// A set that the way to choose does not take, or of nodes that are all not there.
    ///
    /// Linux: mpol_new, mpol_set_nodemask.
    fn settled(&self, policy: Policy) -> Result<Policy, MempolicyError> {
        let asked = policy.nodes();
        let there = asked.and(self.allowed_nodes());
        match policy.mode() {
            mode @ (PolicyMode::Default | PolicyMode::Local) if asked.is_empty() => {
                Ok(Policy::new(mode, NodeMask::default()))
            }
            PolicyMode::Default | PolicyMode::Local => Err(MempolicyError::Invalid),
            PolicyMode::Preferred if asked.is_empty() => {
                Ok(Policy::new(PolicyMode::Local, NodeMask::default()))
            }
            _ if there.is_empty() => Err(MempolicyError::Invalid),
            PolicyMode::Preferred => Ok(Policy::new(PolicyMode::Preferred, there.first())),
            mode => Ok(Policy::new(mode, there)),
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// Sets the policy by which pages of `len` bytes (rounded up to pages) from `start` on are
    /// allocated at first touch.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing.
    ///
    /// # Errors
    /// See [`MempolicyError`]. Nothing is changed then, but after `NoMemory`, where the mappings
    /// before the one that could not be split have the policy, and after `Misplaced` of
    /// [`Misplaced::MoveOrFail`].
    pub fn mbind(
        &self,
        start: VirtAddr,
        len: u64,
        policy: Policy,
        misplaced: Misplaced,
    ) -> Result<(), MempolicyError> {
        as_call(self.system(), || {
            self.system().count(Event::Mempolicy);
            self.system().with_memory(|| {
                let range = if VirtAddr(len).align_up(M::Paging::shift()).is_some() {
                    page_range::<M>(start, len).ok_or(MempolicyError::Invalid)?
                } else {
                    // What wraps when it is rounded up is nothing, as in Linux.
                    page_range::<M>(start, 0).ok_or(MempolicyError::Invalid)?
                };
                if range.is_empty() {
                    return Ok(());
                }
                let kept = self.system().settled(policy)?;
                let strict = misplaced == Misplaced::Refuse && kept.mode() != PolicyMode::Default;
                let nodes = strict.then(|| policy.nodes());
                let writers = Writers::lock(self, self.over(range));
                self.look_over(&writers, range, kept, nodes)?;
                self.bind_all(&writers, range, kept)?;
                drop(writers);
                let moved = match misplaced {
                    Misplaced::Stay | Misplaced::Refuse => true,
                    Misplaced::Move(which) | Misplaced::MoveOrFail(which) => {
                        self.move_for(range, kept, which)
                    }
                };
                M::note(format_args!("mbind {range} {kept:?} returns"));
                let fails = matches!(misplaced, Misplaced::MoveOrFail(_)) && !kept.is_default();
                match moved || !fails {
                    true => Ok(()),
                    false => Err(MempolicyError::Misplaced),
                }
            })
        })
    }

    /// Whether the range can have the policy: holes are refused, unless the policy is the default
    /// and some of the range is mapped; and pages on other nodes than `nodes` may be refused.
    ///
    /// In an era with VMA locks no page is installed meanwhile: the locks are held until the end of
    /// the call. A speculative fault may install a page that is not checked.
    ///
    /// Linux: queue_pages_range.
    fn look_over(
        &self,
        writers: &Writers<'_, M>,
        range: VirtRange,
        policy: Policy,
        nodes: Option<NodeMask>,
    ) -> Result<(), MempolicyError> {
        let held = writers.held();
        let holes = policy.is_default();
        let mut at = range.start();
        let mut none = true;
        while at < range.end()
            && let Some(vma) = held.find(at)
        {
            let view = vma.view();
            let part = view.range.intersect(VirtRange::new(at, range.end()));
            if part.is_empty() {
                break;
            }
            if part.start() > at && !holes {
                return Err(MempolicyError::Fault);
            }
            // A hole behind it counts before its pages do, as in Linux (queue_pages_test_walk).
            if part.end() < range.end() && !holes && !is_mapped(held, part.end()) {
                return Err(MempolicyError::Fault);
            }
            drop(writers.begin(vma));
            let outside = |nodes| match view.is_huge() {
                true => any_huge_outside(held, &view, part, nodes),
                false => any_page(held, part, |pte| self.is_outside(pte, nodes)),
            };
            if nodes.is_some_and(outside) {
                return Err(MempolicyError::Misplaced);
            }
            none = false;
            at = part.end();
        }
        if none || at < range.end() && !holes {
            return Err(MempolicyError::Fault);
        }
        Ok(())
    }

    fn is_outside(&self, pte: Pte<M::Paging>, nodes: NodeMask) -> bool {
        let frames = &self.system().frames;
        !pte.is_zero_page() && !nodes.has(frames.node_of(pte.pfn()))
    }

    /// Gives the policy to all that is mapped in the range. Linux: mbind_range.
    fn bind_all(
        &self,
        writers: &Writers<'_, M>,
        range: VirtRange,
        policy: Policy,
    ) -> Result<(), MempolicyError> {
        let mut at = range.start();
        while at < range.end()
            && let Some(vma) = writers.held().find(at)
        {
            let view = vma.view();
            let part = view.range.intersect(VirtRange::new(at, range.end()));
            if part.is_empty() {
                break;
            }
            if view.policy != policy && view.cuts_huge_page::<M::Paging>(part) {
                return Err(MempolicyError::Invalid);
            }
            if view.policy != policy {
                modify(writers, vma.into(), part, |view| VmaView { policy, ..view })
                    .map(drop)
                    .map_err(|NoMemory| MempolicyError::NoMemory)?;
            }
            at = part.end();
        }
        Ok(())
    }

    /// The policy of what is mapped at `addr` (`MPOL_F_ADDR`); the default one where it has none of
    /// its own.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    ///
    /// # Errors
    /// `Fault`: nothing is mapped there.
    pub fn get_mempolicy_at(&self, addr: VirtAddr) -> Result<Policy, MempolicyError> {
        as_call(self.system(), || {
            self.system().count(Event::Mempolicy);
            let guard = self.read(Over::at(addr));
            let view = guard.held().find(addr).map(Vma::view);
            let view = view.filter(|view| view.range.contains(addr));
            view.map_or(Err(MempolicyError::Fault), |view| Ok(view.policy))
        })
    }
}

fn is_mapped<M: Mmu>(held: Held<'_, M>, addr: VirtAddr) -> bool {
    let found = held.find(addr).map(Vma::view);
    found.is_some_and(|view| view.range.contains(addr))
}

/// Whether a huge page of `part` is elsewhere than on `nodes`.
///
/// Linux: queue_folios_hugetlb.
fn any_huge_outside<M: Mmu>(
    held: Held<'_, M>,
    view: &VmaView,
    part: VirtRange,
    nodes: NodeMask,
) -> bool {
    let frames = &held.system().frames;
    view.huge_size().pages::<M::Paging>(part).any(|page| {
        let seen = held.look_at_huge(view, page.start());
        seen.is_ok_and(|seen| !nodes.has(frames.node_of(seen.pfn)))
    })
}

/// Whether an entry of `range` maps a page for which `test` says so.
fn any_page<M: Mmu>(
    held: Held<'_, M>,
    range: VirtRange,
    test: impl Fn(Pte<M::Paging>) -> bool,
) -> bool {
    let mut at = range.start();
    while at < range.end() {
        let (table, part) = held.tables().part(at, range);
        let Some(leaf) = table else {
            at = part.end();
            continue;
        };
        let found = leaf.entry.load().unmoved();
        if found.is_mapped() && test(found) {
            return true;
        }
        at = VirtAddr(at.0 + M::Paging::page());
    }
    false
}

impl<M: Mmu> Thread<'_, M> {
    /// Sets the policy by which this thread's first touches allocate, in mappings without a policy
    /// of their own.
    ///
    /// # Context
    /// Takes nothing.
    ///
    /// # Errors
    /// `Invalid`: see [`Mm::mbind`].
    pub fn set_mempolicy(&self, policy: Policy) -> Result<(), MempolicyError> {
        let sys = self.mm().system();
        as_call(sys, || {
            sys.count(Event::Mempolicy);
            let kept = sys.settled(policy)?;
            self.share.set_policy(kept);
            Ok(())
        })
    }

    /// This thread's policy. A new thread has the default one; a kernel whose threads inherit it
    /// sets it again.
    #[must_use]
    pub fn get_mempolicy(&self) -> Policy {
        self.share.policy()
    }

    /// The node that the thread's next interleaved allocation outside a mapping would use
    /// (`MPOL_F_NODE`): there are no such allocations, so it is always the first one.
    ///
    /// # Errors
    /// `Invalid`: the thread's policy is no interleaving one.
    pub fn next_interleave_node(&self) -> Result<u32, MempolicyError> {
        let policy = self.share.policy();
        let first = policy.nodes().nth(0);
        let first = first.filter(|_| policy.mode() == PolicyMode::Interleave);
        first.ok_or(MempolicyError::Invalid)
    }

    /// The node of the page at `addr` (`MPOL_F_NODE` with `MPOL_F_ADDR`); faults it in as a load
    /// does.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    ///
    /// # Errors
    /// `Fault`: nothing is mapped there, it allows no loads, or the page cannot be faulted in.
    pub fn node_at(&self, addr: VirtAddr) -> Result<u32, MempolicyError> {
        let mm = self.mm();
        as_call(mm.system(), || {
            mm.system().count(Event::Mempolicy);
            loop {
                if let Some(node) = mm.node_of_page(addr)? {
                    return Ok(node);
                }
                match mm.fault_in(&self.share, addr, Access::Read) {
                    FaultOutcome::Done(_) => {}
                    FaultOutcome::Signal(_) | FaultOutcome::Oom => {
                        return Err(MempolicyError::Fault);
                    }
                }
            }
        })
    }
}

impl<M: Mmu> Mm<M> {
    /// The node of the page at `addr`, if there is one.
    fn node_of_page(&self, addr: VirtAddr) -> Result<Option<u32>, MempolicyError> {
        let guard = self.read(Over::at(addr));
        let held = guard.held();
        let view = held.find(addr).map(Vma::view);
        let readable = |view: &VmaView| view.range.contains(addr) && view.prot.has(Prot::READ);
        let view = view.filter(readable).ok_or(MempolicyError::Fault)?;
        let frames = &self.system().frames;
        if view.is_huge() {
            // By its own walk: others may share the table.
            let node = held.see_huge(&view, addr, |_, pfn| frames.node_of(pfn));
            return Ok(node.ok());
        }
        let Some(leaf) = held.tables().leaf(addr) else {
            return Ok(None);
        };
        let found = leaf.entry.load();
        Ok(found.is_mapped().then(|| frames.node_of(found.pfn())))
    }
}

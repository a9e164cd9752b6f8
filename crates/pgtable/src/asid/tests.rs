//! CPUs with tagged TLBs and several address spaces, at random: no access may go through a stale
//! translation, or below a root that was freed. The flushes are those of `minflt-mm`: of all CPUs
//! in the mask, each of which flushes or leaves.

use super::{ASIDS, Asids, Switch};
use crate::mmu::SpaceId;
use std::collections::BTreeMap;
use std::vec::Vec;
extern crate std;

const CPUS: usize = 3;
const PAGES: u64 = 4;
/// More than there are tags, so that tags change owners.
const SPACES: usize = ASIDS + 2;
const STEPS: u32 = 40_000;

/// What is left out, to see that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lacks {
    Nothing,
    /// A flush of an address space that does not run here leaves its tag.
    FreesTag,
    /// A tag that gets an owner is not flushed.
    FlushesNew,
    /// A flush of everything leaves the tags that are not loaded.
    FlushesAll,
    /// The CPU leaves the mask and stays below the root.
    LeavesRoot,
}

/// How hardware buffers, and what became of it.
struct Cpu {
    asids: Asids,
    /// By tag and page: what the PTE was.
    tlb: BTreeMap<(usize, u64), u64>,
    /// Tag and root in CR3.
    cr3: Option<(usize, u64)>,
    /// The space that runs; CR3 may have one that does not.
    runs: Option<usize>,
}

struct Space {
    id: SpaceId,
    root: u64,
    ptes: [u64; PAGES as usize],
    mask: [bool; CPUS],
}

struct World {
    cpus: Vec<Cpu>,
    spaces: Vec<Space>,
    lacks: Lacks,
    hardware_tags: bool,
    kept: u32,
    random: u64,
}

/// Something is wrong.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    Stale,
    FreedRoot,
}

impl World {
    fn new(lacks: Lacks, hardware_tags: bool, seed: u64) -> Self {
        let cpu = |_| Cpu {
            asids: if hardware_tags {
                Asids::several()
            } else {
                Asids::one()
            },
            tlb: BTreeMap::new(),
            cr3: None,
            runs: None,
        };
        let space = |n: usize| Space {
            id: SpaceId(n as u64 + 1),
            root: n as u64 * 0x1000,
            ptes: [0; PAGES as usize],
            mask: [false; CPUS],
        };
        let spaces: Vec<_> = (0..SPACES).map(space).collect();
        Self {
            cpus: (0..CPUS).map(cpu).collect(),
            spaces,
            lacks,
            hardware_tags,
            kept: 0,
            random: seed,
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    /// As `load` of a kernel.
    fn switch(&mut self, cpu: usize, to: usize) {
        let (id, root) = (self.spaces[to].id, self.spaces[to].root);
        self.spaces[to].mask[cpu] = true;
        let at = &mut self.cpus[cpu];
        at.runs = Some(to);
        let asid = match at.asids.switch(id, root) {
            Switch::Stays => return,
            Switch::Keep(asid) => {
                assert!(self.hardware_tags, "one tag keeps nothing");
                self.kept += 1;
                asid
            }
            Switch::Flush(asid) => {
                if self.lacks != Lacks::FlushesNew {
                    at.tlb.retain(|(tag, _), _| *tag != asid);
                }
                asid
            }
        };
        at.cr3 = Some((asid, root));
    }

    /// An access, by which the page is buffered. A CPU that runs nothing may do so, too: it looks
    /// ahead.
    fn access(&mut self, cpu: usize, page: u64) -> Result<(), Wrong> {
        let Some((asid, root)) = self.cpus[cpu].cr3 else {
            return Ok(());
        };
        let loaded = self.spaces.iter().find(|space| space.root == root);
        let now = loaded.expect("a root of one").ptes[page as usize];
        let used = *self.cpus[cpu].tlb.entry((asid, page)).or_insert(now);
        if used == now || self.cpus[cpu].runs.is_none() {
            return Ok(());
        }
        Err(Wrong::Stale)
    }

    /// As `Mm::answer`, on `cpu`, of one page or of all.
    fn answer(&mut self, cpu: usize, of: usize, page: Option<u64>) {
        let id = self.spaces[of].id;
        let at = &mut self.cpus[cpu];
        if at.runs == Some(of) {
            let (asid, _) = at.cr3.expect("what runs is loaded");
            at.tlb
                .retain(|(tag, it), _| *tag != asid || page.is_some_and(|page| page != *it));
            return;
        }
        self.spaces[of].mask[cpu] = false;
        if self.lacks == Lacks::FreesTag && !at.asids.is_current(id) {
            return;
        }
        if at.asids.leave(id) && self.lacks != Lacks::LeavesRoot {
            at.cr3 = None;
        }
    }

    /// As the answer to more flushes than there is room for: of everything, and no mask is left.
    fn answer_everything(&mut self, cpu: usize) {
        let at = &mut self.cpus[cpu];
        if self.lacks != Lacks::FlushesAll {
            at.asids.forget_all_dormant();
        }
        match at.runs {
            Some(_) => {
                let (asid, _) = at.cr3.expect("what runs is loaded");
                at.tlb.retain(|(tag, _), _| *tag != asid);
            }
            None => {
                at.asids.leave_current();
                at.cr3 = None;
            }
        }
    }

    fn flush(&mut self, of: usize, page: Option<u64>) {
        for cpu in 0..CPUS {
            if self.spaces[of].mask[cpu] {
                if self.below(8) == 0 {
                    self.answer_everything(cpu);
                } else {
                    self.answer(cpu, of, page);
                }
            }
        }
    }

    /// The address space ends, and another one begins: with the same root, and now and then by the
    /// same id, as in the next system on this memory.
    fn end(&mut self, of: usize) -> Result<(), Wrong> {
        for at in &mut self.cpus {
            // Its threads have ended.
            if at.runs == Some(of) {
                at.runs = None;
            }
        }
        self.flush(of, None);
        let root = self.spaces[of].root;
        // Hardware looks ahead at any moment.
        let below = |at: &Cpu| at.cr3.is_some_and(|(_, it)| it == root);
        if self.cpus.iter().any(below) {
            return Err(Wrong::FreedRoot);
        }
        let new_id = self.below(2) == 0;
        let space = &mut self.spaces[of];
        space.id.0 += if new_id { SPACES as u64 } else { 0 };
        space.mask = [false; CPUS];
        space.ptes.iter_mut().for_each(|pte| *pte += 1);
        Ok(())
    }

    fn step(&mut self) -> Result<(), Wrong> {
        let cpu = self.below(CPUS as u64) as usize;
        let of = self.below(SPACES as u64) as usize;
        let page = self.below(PAGES);
        match self.below(64) {
            0 => return self.end(of),
            1..4 => self.cpus[cpu].runs = None,
            4..8 => {
                self.spaces[of].ptes[page as usize] += 1;
                self.flush(of, Some(page));
            }
            8..24 => self.switch(cpu, of),
            _ => return self.access(cpu, page),
        }
        Ok(())
    }

    fn run(mut self) -> Result<u32, Wrong> {
        for _ in 0..STEPS {
            self.step()?;
        }
        Ok(self.kept)
    }
}

const SEEDS: [u64; 4] = [1, 2, 0x9e37_79b9, u64::MAX];

#[test]
fn no_access_is_stale_and_translations_are_kept() {
    for seed in SEEDS {
        let kept = World::new(Lacks::Nothing, true, seed).run();
        assert!(matches!(kept, Ok(1000..)), "seed {seed}: {kept:?}");
        let kept = World::new(Lacks::Nothing, false, seed).run();
        assert_eq!(kept, Ok(0), "seed {seed}");
    }
}

/// Each part of the protocol is needed: without it something is found wrong with every seed.
#[test]
fn what_is_left_out_is_missed() {
    for (lacks, wrong) in [
        (Lacks::FreesTag, Wrong::Stale),
        (Lacks::FlushesNew, Wrong::Stale),
        (Lacks::FlushesAll, Wrong::Stale),
        (Lacks::LeavesRoot, Wrong::FreedRoot),
    ] {
        for seed in SEEDS {
            let found = World::new(lacks, true, seed).run().expect_err("it is seen");
            assert_eq!(found, wrong, "{lacks:?}, seed {seed}");
        }
    }
}

#[test]
fn an_id_with_another_root_is_another_owner() {
    let mut asids = Asids::several();
    assert_eq!(asids.switch(SpaceId(7), 0x1000), Switch::Flush(0));
    assert_eq!(asids.switch(SpaceId(7), 0x1000), Switch::Stays);
    assert_eq!(asids.switch(SpaceId(8), 0x3000), Switch::Flush(1));
    assert_eq!(asids.switch(SpaceId(7), 0x1000), Switch::Keep(0));
    assert_eq!(asids.switch(SpaceId(7), 0x2000), Switch::Flush(0));
    assert_eq!(asids.switch(SpaceId(8), 0x1000), Switch::Flush(1));
    assert!(asids.leave(SpaceId(8)), "it is loaded");
    assert!(!asids.is_current(SpaceId(8)), "it was left");
}

#[test]
fn the_tag_that_was_taken_first_is_taken_first() {
    let mut asids = Asids::several();
    for id in 0..ASIDS as u64 {
        assert_eq!(asids.switch(SpaceId(id), id), Switch::Flush(id as usize));
    }
    assert_eq!(asids.switch(SpaceId(100), 100), Switch::Flush(0));
    assert_eq!(asids.switch(SpaceId(1), 1), Switch::Keep(1));
    asids.forget_dormant(SpaceId(4));
    assert_eq!(asids.switch(SpaceId(101), 101), Switch::Flush(4));
    assert_eq!(asids.switch(SpaceId(0), 0), Switch::Flush(5));
}

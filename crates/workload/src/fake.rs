//! A target for tests: memory is a map, each fault takes a virtual microsecond, each call of the
//! system too, and it can be told to map around faults, to lose a store, to hand out dirty memory,
//! to take private mappings of files for shared ones and the reverse, to lose a page of the file
//! that all have, to lack features, or to let a child's stores through to its parent.

mod memory;

use crate::contents::file_word;
use crate::target::{
    CommonFile, Feature, HugePages, Inherited, Oracle, Pages, Plan, Populate, ProcessReport, Prot,
    Sharing, Spaces, Stop, Target, TargetError, Worker, WorkerReport,
};
use memory::{Backing, Mapping, Memory};
use minflt_addr::VirtAddr;
use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex, MutexGuard};

const PAGE: u64 = 4096;
/// Small, so that tests are.
pub(crate) const HUGE: u64 = 16 * PAGE;
const ENOMEM: i32 = 12;
const ENODEV: i32 = 19;
const SIGSEGV: i32 = 11;

/// The target, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    /// The store that has no effect, counted from 0 over all threads of a process.
    pub(crate) lose_store: Option<u64>,
    /// What fresh memory holds.
    pub(crate) fresh: u64,
    /// It has no files, and its pages hold one word.
    pub(crate) bare: bool,
    /// A child's stores are seen by its parent, and those to inherited memory by all.
    pub(crate) leaky_fork: bool,
    /// Log2 of the pages that a load from a file maps with one fault.
    pub(crate) around: u32,
    /// Stores to private mappings of files reach the file, those to shared ones do not, whatever
    /// their pages are.
    pub(crate) mixes_sharing: bool,
    /// This page of the common file reads 0.
    pub(crate) hole: Option<u64>,
}

/// A plan of so many threads.
pub(crate) fn plan(threads: u32) -> Plan {
    Plan::new(threads, threads)
}

/// What all workers share.
#[derive(Debug)]
struct World {
    barrier: Barrier,
    all: Mutex<Counts>,
    file: Option<CommonFile>,
    huge: Option<HugePages>,
    inherited: Option<Inherited>,
}

#[derive(Debug, Default)]
struct Counts {
    stores: u64,
    faults: u64,
    mailbox: [u64; 8],
    now_ns: u64,
    contents: u64,
    forks: u64,
    around: u64,
    /// What was stored in files.
    files: BTreeMap<(Backing, u64), u64>,
}

#[derive(Debug)]
pub(crate) struct FakeWorker<'w> {
    fake: &'w Fake,
    world: &'w World,
    memory: &'w Mutex<Memory>,
    index: u32,
    threads: u32,
    faults: u64,
    report: WorkerReport,
}

impl Target for Fake {
    type Worker<'w> = FakeWorker<'w>;

    fn name(&self) -> &'static str {
        "fake"
    }

    fn page_size(&self) -> u64 {
        PAGE
    }

    fn cpus(&self) -> u32 {
        64
    }

    fn lacks(&self, _feature: Feature) -> Option<&'static str> {
        self.bare.then_some("the fake is bare")
    }

    fn fault_around_bytes(&self) -> Option<u64> {
        Some(PAGE << self.around)
    }

    fn huge_page_size(&self) -> Option<u64> {
        Some(HUGE)
    }

    fn process<F>(&self, plan: &Plan, body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync,
    {
        let world = World {
            barrier: Barrier::new(plan.threads as usize),
            all: Mutex::new(Counts::default()),
            file: plan.file,
            huge: plan.huge,
            inherited: plan.inherited,
        };
        let inherited = plan.inherited.map(|wanted| self.inherited(&wanted));
        let spaces: Vec<_> = (0..plan.threads).map(|_| Memory::new(inherited)).collect();
        let run = |index: u32| {
            let space = match plan.spaces {
                Spaces::Shared => 0,
                Spaces::Own => index as usize,
            };
            let mut worker = FakeWorker {
                fake: self,
                world: &world,
                memory: &spaces[space],
                index,
                threads: plan.threads,
                faults: 0,
                report: WorkerReport::default(),
            };
            let done = body(&mut worker);
            done.map(|()| worker.report)
                .map_err(|why| TargetError::Stopped { worker: index, why })
        };
        let run = &run;
        let workers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..plan.threads)
                .map(|index| scope.spawn(move || run(index)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let workers = workers.into_iter().collect::<Result<Vec<_>, _>>()?;
        let all = world.all.into_inner().unwrap();
        Ok(ProcessReport {
            wall_ns: all.now_ns,
            user_ns: all.faults * 100,
            system_ns: all.faults * 900,
            faults: all.faults,
            sleeps: all.forks,
            preemptions: u64::from(plan.threads),
            workers,
            events: BTreeMap::from([
                ("page-faults".to_owned(), all.faults),
                ("fault-around-mapped".to_owned(), all.around),
            ]),
            checks: BTreeMap::from([("contents".to_owned(), all.contents)]),
        })
    }
}

impl Fake {
    fn inherited(&self, wanted: &Inherited) -> Mapping {
        Mapping {
            len: wanted.bytes,
            prot: Prot::ReadWrite,
            backing: Backing::Inherited,
            shared: self.leaky_fork,
            page: match wanted.pages {
                Pages::Base => PAGE,
                Pages::Huge => HUGE,
            },
        }
    }
}

impl FakeWorker<'_> {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    fn all(&self) -> MutexGuard<'_, Counts> {
        self.world.all.lock().unwrap()
    }

    /// A call of the system takes its time.
    fn call(&self) {
        self.all().now_ns += 1000;
    }

    /// Brings the page of `at` in, with its neighbours where a load is from a file.
    fn touch(&mut self, at: VirtAddr, store: bool) -> Result<(u64, Mapping), Stop> {
        let mut memory = self.memory();
        let found = memory.mapping(at.0).ok_or(Stop::Signal(SIGSEGV))?;
        let (start, mapping) = found;
        let page = at.0 / mapping.page * mapping.page;
        match mapping.prot {
            Prot::ReadWrite => {}
            Prot::Read if !store => {}
            _ => return Err(Stop::Signal(SIGSEGV)),
        }
        let fresh = memory.present.insert(page);
        let mut around = 0;
        if fresh && !store && matches!(mapping.backing, Backing::Own(_) | Backing::Common) {
            let window = PAGE << self.fake.around;
            let from = (page / window * window).max(start);
            let to = (page / window * window + window).min(start + mapping.len);
            let pages = (from..to).step_by(PAGE as usize);
            around = pages.filter(|page| memory.present.insert(*page)).count() as u64;
        }
        drop(memory);
        if fresh {
            let mut all = self.all();
            all.faults += 1;
            all.around += around;
            all.now_ns += 1000;
            drop(all);
            self.faults += 1;
        }
        Ok(found)
    }

    fn map_at(&mut self, mapping: Mapping) -> Result<VirtAddr, Stop> {
        if mapping.len > 1 << 40 {
            return Err(Stop::Errno(ENOMEM));
        }
        self.call();
        let mut memory = self.memory();
        let at = memory.next;
        // The next window, as far as windows are as small as this.
        memory.next += mapping.len.next_multiple_of(PAGE << 9) + (PAGE << 9);
        memory.mapped.insert(at, mapping);
        Ok(VirtAddr(at))
    }

    fn populate(&mut self, at: VirtAddr, mapping: &Mapping) -> Result<(), Stop> {
        for page in (0..mapping.len).step_by(mapping.page as usize) {
            self.touch(VirtAddr(at.0 + page), true)?;
        }
        Ok(())
    }
}

impl<'w> Worker for FakeWorker<'w> {
    type Child<'c> = FakeWorker<'c>;

    fn index(&self) -> u32 {
        self.index
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn page_size(&self) -> u64 {
        PAGE
    }

    fn map(&mut self, len: u64, prot: Prot) -> Result<VirtAddr, Stop> {
        self.map_at(Mapping {
            len,
            prot,
            backing: Backing::Anonymous,
            shared: false,
            page: PAGE,
        })
    }

    fn map_huge(&mut self, len: u64, populate: Populate) -> Result<VirtAddr, Stop> {
        assert!(self.world.huge.is_some() && len.is_multiple_of(HUGE));
        let mapping = Mapping {
            len,
            prot: Prot::ReadWrite,
            backing: Backing::Anonymous,
            shared: false,
            page: HUGE,
        };
        let at = self.map_at(mapping)?;
        if populate == Populate::Now {
            self.populate(at, &mapping)?;
        }
        Ok(at)
    }

    fn map_huge_common(&mut self, prot: Prot) -> Result<VirtAddr, Stop> {
        let bytes = self.world.huge.and_then(|huge| huge.file_bytes);
        self.map_at(Mapping {
            len: bytes.ok_or(Stop::Errno(ENODEV))?,
            prot,
            backing: Backing::Huge,
            shared: !self.fake.mixes_sharing,
            page: HUGE,
        })
    }

    fn inherited(&mut self) -> Result<VirtAddr, Stop> {
        let some = self.world.inherited.ok_or(Stop::Errno(ENODEV))?;
        assert!(some.bytes > 0);
        Ok(VirtAddr(Memory::INHERITED))
    }

    fn map_file(&mut self, len: u64, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        self.map_at(Mapping {
            len,
            prot,
            backing: Backing::Own(self.index),
            shared: (sharing == Sharing::Shared) != self.fake.mixes_sharing,
            page: PAGE,
        })
    }

    fn map_common(&mut self, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        let file = self.world.file.ok_or(Stop::Errno(ENODEV))?;
        self.map_at(Mapping {
            len: file.bytes.next_multiple_of(PAGE),
            prot,
            backing: Backing::Common,
            shared: (sharing == Sharing::Shared) != self.fake.mixes_sharing,
            page: PAGE,
        })
    }

    fn unmap(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        self.call();
        let mut memory = self.memory();
        assert_eq!(memory.mapped.remove(&at.0).unwrap().len, len);
        memory.drop_pages(at.0, len.next_multiple_of(PAGE));
        Ok(())
    }

    /// Within one mapping.
    fn protect(&mut self, at: VirtAddr, len: u64, prot: Prot) -> Result<(), Stop> {
        self.call();
        let mut memory = self.memory();
        let (&start, &whole) = memory.mapped.range(..=at.0).next_back().unwrap();
        let (end, rest) = (at.0 + len, start + whole.len);
        assert!(end <= rest);
        let parts = [
            (start..at.0, whole.prot),
            (at.0..end, prot),
            (end..rest, whole.prot),
        ];
        for (part, prot) in parts.into_iter().filter(|(part, _)| !part.is_empty()) {
            let len = part.end - part.start;
            let mapping = Mapping { len, prot, ..whole };
            memory.mapped.insert(part.start, mapping);
        }
        Ok(())
    }

    fn discard(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        self.call();
        self.memory().drop_pages(at.0, len);
        Ok(())
    }

    fn move_page(&mut self, _at: VirtAddr, _node: u32) -> Result<bool, Stop> {
        self.call();
        Ok(true)
    }

    fn brk(&mut self, at: Option<VirtAddr>) -> VirtAddr {
        self.call();
        let mut memory = self.memory();
        if let Some(at) = at
            && (Memory::HEAP..Memory::HEAP << 4).contains(&at.0)
        {
            let old = memory.brk;
            memory.brk = at.0;
            memory.drop_pages(at.0, old.saturating_sub(at.0));
        }
        VirtAddr(memory.brk)
    }

    fn fork<F>(&mut self, child: F) -> Result<(), Stop>
    where
        F: for<'c> FnOnce(&mut Self::Child<'c>) -> Result<(), Stop>,
    {
        self.call();
        self.all().forks += 1;
        let copy = Mutex::new(self.memory().clone());
        let mut worker = FakeWorker {
            fake: self.fake,
            world: self.world,
            memory: if self.fake.leaky_fork {
                self.memory
            } else {
                &copy
            },
            index: self.index,
            threads: self.threads,
            faults: self.faults,
            report: self.report,
        };
        let done = child(&mut worker);
        (self.faults, self.report) = (worker.faults, worker.report);
        done
    }

    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop> {
        let (start, mapping) = self.touch(at, true)?;
        let mut all = self.all();
        all.stores += 1;
        all.now_ns += 1;
        let lost = self.fake.lose_store == Some(all.stores - 1);
        if lost {
            return Ok(());
        }
        if mapping.shared {
            let place = (mapping.backing, at.0 - start);
            all.files.insert(place, value);
        } else {
            drop(all);
            self.memory().words.insert(at.0, value);
        }
        Ok(())
    }

    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop> {
        let (start, mapping) = self.touch(at, false)?;
        if let Some(own) = self.memory().words.get(&at.0) {
            return Ok(*own);
        }
        let (offset, page) = (at.0 - start, (at.0 - start) / PAGE);
        let stored = self.all().files.get(&(mapping.backing, offset)).copied();
        Ok(match mapping.backing {
            Backing::Anonymous => self.fake.fresh,
            Backing::Own(_) | Backing::Huge | Backing::Inherited => stored.unwrap_or(0),
            Backing::Common if offset % PAGE != 0 || self.fake.hole == Some(page) => 0,
            Backing::Common => stored.unwrap_or(file_word(page)),
        })
    }

    fn compute(&mut self, ns: u64) {
        self.all().now_ns += ns;
    }

    fn barrier(&mut self) {
        self.world.barrier.wait();
    }

    fn post(&mut self, slot: usize, value: u64) {
        self.all().mailbox[slot] = value;
    }

    fn read(&mut self, slot: usize) -> u64 {
        self.all().mailbox[slot]
    }

    fn claim(&mut self, slot: usize) -> u64 {
        let mut all = self.all();
        all.mailbox[slot] += 1;
        all.mailbox[slot] - 1
    }

    fn now_ns(&mut self) -> u64 {
        self.all().now_ns
    }

    fn window_open(&mut self) {
        self.report.start_ns = self.now_ns();
        self.faults = 0;
    }

    fn window_close(&mut self) {
        self.report.end_ns = self.now_ns();
        self.report.faults = self.faults;
        self.report.user_ns = self.faults * 100;
        self.report.system_ns = self.faults * 900;
    }

    fn ops(&mut self, n: u64) {
        self.report.ops += n;
    }

    fn checked(&mut self, oracle: Oracle, n: u64) {
        assert_eq!(oracle, Oracle::Contents);
        self.all().contents += n;
    }
}

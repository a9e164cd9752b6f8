//! A target for tests: memory is a map, each fault takes a virtual microsecond, and it can be told
//! to lose a store or to hand out dirty memory.

use crate::target::{
    Clear, Oracle, Plan, ProcessReport, Prot, Stop, Target, TargetError, Worker, WorkerReport,
};
use minflt_addr::VirtAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Barrier, Mutex, MutexGuard};

const PAGE: u64 = 4096;
const ENOMEM: i32 = 12;
const SIGSEGV: i32 = 11;

/// The target, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    /// The store that has no effect, counted from 0 over all threads of a process.
    pub(crate) lose_store: Option<u64>,
    /// What fresh memory holds.
    pub(crate) fresh: u64,
}

/// A plan of so many threads.
pub(crate) fn plan(threads: u32) -> Plan {
    Plan {
        threads,
        cpus: threads,
        clear: Clear::InFault,
    }
}

#[derive(Debug, Default)]
struct Memory {
    next: u64,
    mapped: BTreeMap<u64, u64>,
    present: BTreeSet<u64>,
    words: BTreeMap<u64, u64>,
    stores: u64,
    faults: u64,
    mailbox: [u64; 8],
    now_ns: u64,
    contents: u64,
}

#[derive(Debug)]
pub(crate) struct FakeWorker<'w> {
    fake: &'w Fake,
    memory: &'w Mutex<Memory>,
    barrier: &'w Barrier,
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

    fn process<F>(&self, plan: &Plan, body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync,
    {
        let memory = Mutex::new(Memory {
            next: 1 << 30,
            ..Memory::default()
        });
        let barrier = Barrier::new(plan.threads as usize);
        let run = |index| {
            let mut worker = FakeWorker {
                fake: self,
                memory: &memory,
                barrier: &barrier,
                index,
                threads: plan.threads,
                faults: 0,
                report: WorkerReport::default(),
            };
            let done = body(&mut worker);
            done.map(|()| worker.report)
                .map_err(|why| TargetError::Stopped { worker: index, why })
        };
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
        let memory = memory.into_inner().unwrap();
        Ok(ProcessReport {
            wall_ns: memory.now_ns,
            user_ns: memory.faults * 100,
            system_ns: memory.faults * 900,
            faults: memory.faults,
            workers,
            events: BTreeMap::from([("page-faults".to_owned(), memory.faults)]),
            checks: BTreeMap::from([("contents".to_owned(), memory.contents)]),
        })
    }
}

impl FakeWorker<'_> {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    /// Brings the page of `at` in.
    fn touch(&mut self, at: VirtAddr) -> Result<(), Stop> {
        let page = at.0 / PAGE * PAGE;
        let mut memory = self.memory();
        let below = memory.mapped.range(..=page).next_back();
        if below.is_none_or(|(&start, &len)| page >= start + len) {
            return Err(Stop::Signal(SIGSEGV));
        }
        if memory.present.insert(page) {
            memory.faults += 1;
            memory.now_ns += 1000;
            drop(memory);
            self.faults += 1;
        }
        Ok(())
    }
}

impl Worker for FakeWorker<'_> {
    fn index(&self) -> u32 {
        self.index
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn page_size(&self) -> u64 {
        PAGE
    }

    fn map(&mut self, len: u64, _prot: Prot) -> Result<VirtAddr, Stop> {
        if len > 1 << 40 {
            return Err(Stop::Errno(ENOMEM));
        }
        let mut memory = self.memory();
        let at = memory.next;
        memory.next += len + PAGE;
        memory.mapped.insert(at, len);
        Ok(VirtAddr(at))
    }

    fn unmap(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        let mut memory = self.memory();
        assert_eq!(memory.mapped.remove(&at.0), Some(len));
        memory
            .present
            .retain(|page| !(at.0..at.0 + len).contains(page));
        memory
            .words
            .retain(|word, _| !(at.0..at.0 + len).contains(word));
        Ok(())
    }

    fn protect(&mut self, _at: VirtAddr, _len: u64, _prot: Prot) -> Result<(), Stop> {
        Err(Stop::Errno(ENOMEM))
    }

    fn discard(&mut self, _at: VirtAddr, _len: u64) -> Result<(), Stop> {
        Err(Stop::Errno(ENOMEM))
    }

    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop> {
        self.touch(at)?;
        let lose = self.fake.lose_store;
        let mut memory = self.memory();
        if lose != Some(memory.stores) {
            memory.words.insert(at.0, value);
        }
        memory.stores += 1;
        memory.now_ns += 1;
        Ok(())
    }

    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop> {
        self.touch(at)?;
        let fresh = self.fake.fresh;
        Ok(self.memory().words.get(&at.0).copied().unwrap_or(fresh))
    }

    fn compute(&mut self, ns: u64) {
        self.memory().now_ns += ns;
    }

    fn barrier(&mut self) {
        self.barrier.wait();
    }

    fn post(&mut self, slot: usize, value: u64) {
        self.memory().mailbox[slot] = value;
    }

    fn read(&mut self, slot: usize) -> u64 {
        self.memory().mailbox[slot]
    }

    fn now_ns(&mut self) -> u64 {
        self.memory().now_ns
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
        self.memory().contents += n;
    }
}

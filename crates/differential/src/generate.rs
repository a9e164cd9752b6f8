//! Random steps, in and around the window.
//!
//! Half of the addresses are the edges of mappings that the model has at that moment; a few are
//! misaligned, wrap, or lie beyond user space. A step whose effect would reach out of the window
//! is thrown away and drawn again ([`stays_inside`]).

mod files;
mod huge;
mod inside;
mod userfault;

use crate::model::Running;
use crate::random::Random;
use crate::record::Record;
use crate::step::{ADVICE, BIND, Call, GET, LOCKALL, MAP, MODE, REMAP, Step};
use crate::window::{HEAP, PAGE, PAGES, START, Window};
pub use huge::huge_case;
pub use inside::stays_inside;
use minflt_spec::{ExecAlone, HALF, Space, TASK_SIZE, abi};

/// How often each call is drawn.
const WEIGHTS: [(Call, u64); 35] = [
    (Call::Mmap, 160),
    (Call::Munmap, 60),
    (Call::Mprotect, 110),
    (Call::Mremap, 90),
    (Call::Madvise, 120),
    (Call::Mlock, 16),
    (Call::Mlock2, 16),
    (Call::Munlock, 24),
    (Call::Mlockall, 16),
    (Call::Munlockall, 4),
    (Call::Mincore, 16),
    (Call::Brk, 30),
    (Call::Mbind, 24),
    (Call::SetMempolicy, 8),
    (Call::GetMempolicy, 12),
    (Call::LimitMemlock, 24),
    (Call::LimitAs, 4),
    (Call::Load, 110),
    (Call::Store, 150),
    (Call::RemoteRead, 16),
    (Call::RemoteWrite, 16),
    (Call::ForcedRead, 12),
    (Call::ForcedWrite, 12),
    (Call::Fork, 12),
    (Call::MmapFile, 130),
    (Call::Msync, 12),
    (Call::Ftruncate, 24),
    (Call::Fallocate, 18),
    (Call::Pread, 10),
    (Call::Pwrite, 18),
    (Call::UffdRegister, 80),
    (Call::UffdUnregister, 8),
    (Call::UffdCopy, 50),
    (Call::UffdZeropage, 40),
    (Call::UffdWriteprotect, 40),
];

/// Which steps are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Whether all who run the step have the call and its flags.
    pub has: fn(&Step) -> bool,
    /// Whether what the step came to differs by design: the address space
    /// before, and what it came to.
    pub differs: fn(&Step, &Space, &Record) -> bool,
    /// What `PROT_EXEC` alone allows; none where that is not drawn.
    pub exec_alone: Option<ExecAlone>,
}

impl Choice {
    /// Every step.
    pub const ALL: Self = Self {
        has: |_| true,
        differs: |_, _, _| false,
        exec_alone: None,
    };

    /// Runs the step on the model, unless it is left out; what it came to.
    pub fn step(&self, running: &mut Running, step: &Step) -> Option<Record> {
        let others = running.in_child() && step.call.is_of_userfaultfd();
        let unknown = self.exec_alone.is_none() && step.is_exec_alone();
        if !(self.has)(step) || !stays_inside(step) || unknown || others {
            return None;
        }
        let mut after = running.clone();
        let record = after.step(step);
        let before = running.space();
        let hangs = inside::hangs_on_more(step, before, after.space(), &record.outcome);
        if hangs || (self.differs)(step, before, &record) {
            return None;
        }
        *running = after;
        Some(record)
    }
}

/// Draws a case of `count` steps, with what the model says of each.
#[must_use]
pub fn case(random: &mut Random, count: usize, choice: &Choice) -> (Vec<Step>, Vec<Record>) {
    let mut running = Running::of(Window::Small, choice);
    let mut draw = Draw {
        // Pages that were given away (`MADV_FREE`) may go when others are paged out.
        frees: random.once_in(2),
        exec_alone: choice.exec_alone.is_some(),
        stores: 0,
        random,
    };
    let mut steps = Vec::with_capacity(count);
    let mut records = Vec::with_capacity(count);
    while steps.len() < count {
        let step = draw.step(&running);
        if step.call == Call::Fork && running.in_child() {
            continue;
        }
        if let Some(record) = choice.step(&mut running, &step) {
            records.push(record);
            steps.push(step);
        }
    }
    (steps, records)
}

struct Draw<'a> {
    random: &'a mut Random,
    frees: bool,
    exec_alone: bool,
    stores: u64,
}

impl Draw<'_> {
    fn call(&mut self) -> Call {
        let sum: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        loop {
            let mut at = self.random.below(sum);
            let drawn = WEIGHTS.iter().find(|(_, weight)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            });
            if let Some((call, _)) = drawn {
                return *call;
            }
        }
    }

    /// The number of a page, or of the end.
    fn page(&mut self, running: &Running) -> u64 {
        let vmas = running.space().vmas();
        if self.random.once_in(6)
            && let Some(page) = self.page_of_file(vmas)
        {
            return page;
        }
        if vmas.is_empty() || self.random.once_in(2) {
            return self.random.below(PAGES);
        }
        let vma = &vmas[self.random.below(vmas.len() as u64) as usize];
        let (start, end) = ((vma.start - START) / PAGE, (vma.end - START) / PAGE);
        let page = match self.random.below(6) {
            0..2 => start,
            2 => end,
            3 => end - 1,
            4 => start.saturating_sub(1 + self.random.below(4)),
            _ => start + self.random.below(end - start),
        };
        page.min(PAGES - 1)
    }

    fn addr(&mut self, running: &Running) -> u64 {
        match self.random.below(120) {
            0 => self
                .random
                .pick(&[0, 1 << 63, TASK_SIZE, TASK_SIZE - PAGE, u64::MAX - 4095]),
            1..4 => START + self.page(running) * PAGE + self.random.pick(&[1, 8, 2048, 4095]),
            _ => START + self.page(running) * PAGE,
        }
    }

    fn len(&mut self) -> u64 {
        let pages = match self.random.below(8) {
            0..6 => 1 + self.random.below(6),
            6 => 1 + self.random.below(24),
            _ => 1,
        };
        match self.random.below(90) {
            0 => self
                .random
                .pick(&[u64::MAX, u64::MAX - PAGE, TASK_SIZE, 1 << 47, 1 << 46]),
            1..3 => 0,
            3..8 => pages * PAGE - self.random.pick(&[1, 8, 4095]),
            _ => pages * PAGE,
        }
    }

    fn prot(&mut self) -> u64 {
        let odd = [
            abi::PROT_SEM,
            abi::PROT_GROWSDOWN,
            abi::PROT_GROWSUP,
            abi::PROT_GROWSDOWN | abi::PROT_GROWSUP,
            0x10,
            1 << 40,
        ];
        if self.exec_alone && self.random.once_in(4) {
            return abi::PROT_EXEC;
        }
        let plain = match self.random.below(16) {
            0..8 => abi::PROT_READ | abi::PROT_WRITE,
            8..11 => abi::PROT_READ,
            11..13 => 0,
            13 => abi::PROT_WRITE,
            14 => abi::PROT_READ | abi::PROT_EXEC,
            _ => self.random.pick(&[6, 7]),
        };
        match self.random.below(30) {
            0 => plain | self.random.pick(&odd),
            _ => plain,
        }
    }

    fn map_flags(&mut self) -> u64 {
        let kind = match self.random.below(100) {
            0 => self.random.pick(&[0, abi::MAP_SHARED_VALIDATE]),
            1..12 => abi::MAP_SHARED,
            _ => abi::MAP_PRIVATE,
        };
        self.place_flags() | kind | abi::MAP_ANONYMOUS
    }

    /// The flags beside those that say what is mapped.
    fn place_flags(&mut self) -> u64 {
        let mut flags = match self.random.below(8) {
            0..4 => abi::MAP_FIXED,
            4..6 => abi::MAP_FIXED_NOREPLACE,
            _ => 0,
        };
        for (name, bit) in MAP.names {
            let one_in = match *name {
                "POPULATE" | "NORESERVE" => 8,
                "LOCKED" | "GROWSDOWN" => 14,
                "STACK" | "NONBLOCK" => 20,
                _ => continue,
            };
            if self.random.once_in(one_in) {
                flags |= bit;
            }
        }
        flags
    }

    /// The address for an mmap with these flags: half of those that need none have none.
    fn hint(&mut self, flags: u64, addr: u64) -> u64 {
        let fixed = abi::MAP_FIXED | abi::MAP_FIXED_NOREPLACE;
        if flags & fixed == 0 && self.random.once_in(2) {
            0
        } else {
            addr
        }
    }

    /// A set of these, most often of few, now and then with an unknown one.
    fn set(&mut self, names: &[(&str, u64)]) -> u64 {
        let mut set = 0;
        for (_, bit) in names {
            if self.random.once_in(2) {
                set |= bit;
            }
        }
        if self.random.once_in(40) {
            set |= 1 << (8 + self.random.below(20));
        }
        set
    }

    fn advice(&mut self) -> u64 {
        match self.random.below(60) {
            0 => self.random.pick(&[5, 7, 26, 99, 1 << 33]),
            1..9 => abi::MADV_DONTNEED,
            _ => {
                let (_, advice) = self.random.pick(ADVICE.names);
                match advice {
                    abi::MADV_PAGEOUT if self.frees => abi::MADV_FREE,
                    abi::MADV_FREE if !self.frees => abi::MADV_PAGEOUT,
                    advice => advice,
                }
            }
        }
    }

    fn mode(&mut self) -> u64 {
        match self.random.below(20) {
            0 => self.random.pick(&[7, 99, 3 << 14 | 2, 1 << 13 | 1]),
            _ => self.random.pick(MODE.names).1,
        }
    }

    fn nodes(&mut self) -> u64 {
        match self.random.below(8) {
            0..3 => 0,
            3 => 2,
            4 => 3,
            _ => 1,
        }
    }

    fn step(&mut self, running: &Running) -> Step {
        let call = self.call();
        let addr = self.addr(running);
        let page = START + self.page(running) * PAGE;
        let len = self.len();
        let pages = (1 + self.random.below(6)) * PAGE;
        let word = page + self.random.pick(&[0, 0, 0, HALF]);
        let step = |args: &[u64]| Step::new(call, args);
        match call {
            Call::Mmap => {
                let flags = self.map_flags();
                step(&[self.hint(flags, addr), len, self.prot(), flags])
            }
            Call::Mprotect => step(&[addr, len, self.prot()]),
            Call::Mremap => step(&self.remap(running, addr)),
            Call::Madvise => step(&[addr, len, self.advice()]),
            Call::Mlock2 => {
                let how = self.random.pick(&[0, 1, 1, 1, 2]);
                step(&[addr, len, how])
            }
            Call::Mlockall => step(&[self.set(LOCKALL.names)]),
            Call::Brk => step(&[self.brk(addr)]),
            Call::Mbind => step(&self.mbind(addr, len)),
            Call::SetMempolicy => step(&[self.mode(), self.nodes()]),
            Call::GetMempolicy => {
                let how = self.set(GET.names);
                let at = if how & abi::MPOL_F_ADDR != 0 { page } else { 0 };
                let odd = self.random.once_in(10);
                step(&[if odd { page } else { at }, how])
            }
            Call::Mlock | Call::Munlock if self.random.once_in(40) => {
                step(&[u64::MAX - (PAGE - 1), pages])
            }
            Call::LimitMemlock => {
                let some = self.random.below(64) * PAGE + self.random.pick(&[0, 0, 100]);
                let bytes = self.random.pick(&[some, some, 0, u64::MAX, u64::MAX]);
                step(&[bytes])
            }
            Call::LimitAs => {
                let some = self.random.below(PAGES);
                step(&[self.random.pick(&[some, 1 << 40, 1 << 40])])
            }
            Call::Load | Call::ForcedRead => step(&[word]),
            Call::Store | Call::ForcedWrite => step(&[word, self.value()]),
            Call::RemoteRead => step(&[page, pages]),
            Call::RemoteWrite => step(&[page, pages, self.value()]),
            Call::Fork => step(&[1 + self.random.below(8)]),
            Call::MmapFile
            | Call::Msync
            | Call::Ftruncate
            | Call::Fallocate
            | Call::Pread
            | Call::Pwrite => self.of_files(call, addr, len),
            call if call.is_of_userfaultfd() => self.of_userfaultfd(running, call, addr),
            _ => step(&[addr, len]),
        }
    }

    fn mbind(&mut self, addr: u64, len: u64) -> [u64; 5] {
        let mut how = if self.random.once_in(4) {
            self.set(BIND.names)
        } else {
            0
        };
        // Whether all pages could be moved hangs on more than this process.
        if how & abi::MPOL_MF_MOVE != 0 {
            how &= !abi::MPOL_MF_STRICT;
        }
        // What is nowhere in particular cannot be where it has to be.
        if how == abi::MPOL_MF_STRICT && self.random.once_in(2) {
            let mode = [abi::MPOL_LOCAL, abi::MPOL_PREFERRED_MANY];
            return [addr, len, self.random.pick(&mode), 0, how];
        }
        [addr, len, self.mode(), self.nodes(), how]
    }

    /// A value that no other store of the case has.
    fn value(&mut self) -> u64 {
        self.stores += 16;
        self.stores
    }

    fn brk(&mut self, addr: u64) -> u64 {
        match self.random.below(8) {
            0 => 0,
            1 => addr,
            2 => HEAP + self.random.below(12 * PAGE),
            3 => HEAP,
            _ => HEAP + self.random.below(16) * PAGE,
        }
    }

    fn remap(&mut self, running: &Running, addr: u64) -> [u64; 5] {
        let mut old = self.len();
        let mut from = addr;
        let vmas = running.space().vmas();
        if !vmas.is_empty() && !self.random.once_in(3) {
            let vma = &vmas[self.random.below(vmas.len() as u64) as usize];
            from = vma.start + self.random.below(vma.pages()) * PAGE;
            if self.random.once_in(3) {
                from = vma.start;
            }
            old = vma.end - from;
            if self.random.once_in(4) {
                old = (1 + self.random.below(old / PAGE)) * PAGE;
            }
        }
        let new = match self.random.below(4) {
            0..2 => old,
            _ => self.len(),
        };
        let mut flags = match self.random.below(10) {
            0 => 0,
            1..4 => abi::MREMAP_MAYMOVE,
            4..7 => abi::MREMAP_MAYMOVE | abi::MREMAP_FIXED,
            7 => abi::MREMAP_MAYMOVE | abi::MREMAP_DONTUNMAP,
            8 => abi::MREMAP_MAYMOVE | abi::MREMAP_FIXED | abi::MREMAP_DONTUNMAP,
            _ => self.set(REMAP.names),
        };
        if self.random.once_in(60) {
            flags |= 8;
        }
        let to = if self.random.once_in(6) {
            0
        } else {
            self.addr(running)
        };
        [from, old, new, flags, to]
    }
}

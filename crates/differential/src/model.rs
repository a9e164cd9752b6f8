//! The model as a subject.

use crate::files::{self, FILES, opened};
use crate::generate::Choice;
use crate::record::{
    ACCERR, ADRERR, FileShot, HUGE_FILE, MAPERR, MapLine, Outcome, Record, SHARED_ANONYMOUS,
    Snapshot, Subject, bits,
};
use crate::step::{Call, Step};
use crate::window::{HEAP, HOT, HUGE, HUGE_START, PAGE, POOL, Window, hot, page_of};
use minflt_spec::{Errno, File, Flags, Signal, Space, Vma, Words};
use std::collections::BTreeMap;

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct Spec;

/// A model after the steps run so far: what the generator of steps looks at, too.
#[derive(Clone, Debug)]
pub struct Running {
    spaces: Vec<(Space, u64)>,
    window: Window,
}

impl Running {
    /// An empty address space.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Window::Small)
    }

    /// The same with another window.
    #[must_use]
    pub fn with(window: Window) -> Self {
        let mut space = Space::new(window.range(), HEAP);
        match window {
            Window::Small => files::add(&mut space),
            Window::Huge => {
                space.set_huge_pool(POOL);
                space.add_huge_file(files::HUGE_PAGES);
            }
        }
        Self {
            spaces: vec![(space, u64::MAX)],
            window,
        }
    }

    /// The address space that the next step is run in.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.spaces[self.spaces.len() - 1].0
    }

    /// Whether the next step is a forked child's.
    #[must_use]
    pub fn in_child(&self) -> bool {
        self.spaces.len() > 1
    }

    /// The same for what `choice` draws.
    #[must_use]
    pub fn of(window: Window, choice: &Choice) -> Self {
        let mut running = Self::with(window);
        if let Some(exec_alone) = choice.exec_alone {
            running.spaces[0].0.set_exec_alone(exec_alone);
        }
        running
    }

    /// Runs a step.
    pub fn step(&mut self, step: &Step) -> Record {
        let last = self.spaces.len() - 1;
        let (space, _) = &mut self.spaces[last];
        let outcome = run(space, step);
        let child = (step.call == Call::Fork && last == 0).then(|| space.fork());
        let after = match self.window {
            Window::Small => snapshot(space),
            Window::Huge => huge_snapshot(space),
        };
        if let Some(child) = child.filter(|_| step.args[0] > 0) {
            self.spaces.push((child, step.args[0]));
        } else if last > 0 {
            self.spaces[last].1 -= 1;
            if self.spaces[last].1 == 0
                && let Some((child, _)) = self.spaces.pop()
            {
                self.spaces[0].0.join(child);
            }
        }
        Record { outcome, after }
    }
}

impl Default for Running {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for Spec {
    fn name(&self) -> String {
        "spec".to_owned()
    }

    fn run(&mut self, steps: &[Step]) -> Result<Vec<Record>, (String, usize)> {
        let mut running = Running::with(Window::of(steps));
        Ok(steps.iter().map(|step| running.step(step)).collect())
    }
}

fn run(space: &mut Space, step: &Step) -> Outcome {
    let [a, b, c, d, e, f] = step.args;
    let number = |result: Result<u64, Errno>| match result {
        Ok(value) => Outcome::done(value),
        Err(Errno(errno)) => Outcome::Errno(errno),
    };
    let nothing = |result: Result<(), Errno>| number(result.map(|()| 0));
    match step.call {
        Call::Mmap => number(space.mmap(a, b, c, d)),
        Call::Munmap => nothing(space.munmap(a, b)),
        Call::Mprotect => nothing(space.mprotect(a, b, c)),
        Call::Mremap => number(space.mremap(a, b, c, d, e)),
        Call::Madvise => nothing(space.madvise(a, b, c)),
        Call::Mlock => nothing(space.mlock(a, b, 0)),
        Call::Mlock2 => nothing(space.mlock(a, b, c)),
        Call::Munlock => nothing(space.munlock(a, b)),
        Call::Mlockall => nothing(space.mlockall(a)),
        Call::Munlockall => {
            space.munlockall();
            Outcome::done(0)
        }
        Call::Mincore => match space.mincore(a, b) {
            Ok(present) => Outcome::Done(0, bits_of(&present)),
            Err(Errno(errno)) => Outcome::Errno(errno),
        },
        Call::Brk => Outcome::done(space.brk(a)),
        Call::Mbind => nothing(space.mbind(a, b, c, d, e)),
        Call::SetMempolicy => nothing(space.set_mempolicy(a, b)),
        Call::GetMempolicy => match space.get_mempolicy(a, b) {
            Ok((mode, nodes)) => Outcome::Done(mode, [nodes, 0]),
            Err(Errno(errno)) => Outcome::Errno(errno),
        },
        Call::LimitMemlock => {
            space.limit_memlock(a);
            Outcome::done(0)
        }
        Call::LimitAs => {
            space.limit_as(a);
            Outcome::done(0)
        }
        Call::Load => signal(space.load(a)),
        Call::Store => signal(space.store(a, b).map(|()| 0)),
        Call::RemoteRead => match space.remote_read(a, b) {
            Ok((bytes, words)) => Outcome::Done(bytes, [fold(words), 0]),
            Err(Errno(errno)) => Outcome::Errno(errno),
        },
        Call::RemoteWrite => number(space.remote_write(a, b, c)),
        Call::ForcedRead => number(space.forced_read(a)),
        Call::ForcedWrite => nothing(space.forced_write(a, b)),
        Call::Fork => Outcome::done(0),
        Call::MmapFile => number(space.mmap_file(a, b, c, d, (opened(e), f))),
        Call::Msync => nothing(space.msync(a, b, c)),
        Call::Ftruncate => nothing(space.ftruncate(opened(a), b)),
        Call::Fallocate => nothing(space.fallocate(opened(a), b, c, d)),
        Call::Pread => match space.pread(opened(a), b) {
            Ok((bytes, word)) => Outcome::Done(bytes, [word, 0]),
            Err(Errno(errno)) => Outcome::Errno(errno),
        },
        Call::Pwrite => number(space.pwrite(opened(a), b, c)),
        Call::UffdRegister => nothing(space.uffd_register(a, b, c)),
        Call::UffdUnregister => nothing(space.uffd_unregister(a, b)),
        Call::UffdCopy => nothing(space.uffd_copy(a, b, c, d)),
        Call::UffdZeropage => nothing(space.uffd_zeropage(a, b, c)),
        Call::UffdWriteprotect => nothing(space.uffd_writeprotect(a, b, c)),
        _ => run_huge(space, step),
    }
}

/// A step that is of huge pages only.
fn run_huge(space: &mut Space, step: &Step) -> Outcome {
    let [a, b, c, d, e, _] = step.args;
    let file = opened(0);
    let value = |value| (value, [0; 2]);
    let done = match step.call {
        Call::HugeMmap => space.mmap_huge(a, b, c, d).map(value),
        Call::HugeMmapFile => space.mmap_huge_file(a, b, c, d, (file, e)).map(value),
        Call::HugeFtruncate => space.huge_ftruncate(file, a).map(|()| value(0)),
        Call::HugeFallocate => space.huge_fallocate(file, a, b, c).map(|()| value(0)),
        _ => space
            .huge_pread(file, a)
            .map(|(bytes, word)| (bytes, [word, 0])),
    };
    match done {
        Ok((value, beside)) => Outcome::Done(value, beside),
        Err(Errno(errno)) => Outcome::Errno(errno),
    }
}

fn signal(result: Result<u64, Signal>) -> Outcome {
    match result {
        Ok(value) => Outcome::done(value),
        Err(Signal::MapErr) => Outcome::Signal(MAPERR),
        Err(Signal::AccErr) => Outcome::Signal(ACCERR),
        Err(Signal::Bus) => Outcome::Signal(ADRERR),
    }
}

/// Some words as one, in which their order counts.
pub(crate) fn fold(words: impl IntoIterator<Item = u64>) -> u64 {
    let mix = |sum: u64, word: u64| sum.rotate_left(7).wrapping_mul(31).wrapping_add(word);
    words.into_iter().fold(1, mix)
}

/// What mincore said, as bits from the first page asked about on.
pub(crate) fn bits_of(present: &[bool]) -> [u64; 2] {
    let pages = (0..).zip(present).filter(|(_, present)| **present);
    bits(pages.map(|(page, _)| page))
}

fn line_of(vma: &Vma) -> MapLine {
    let right = |flag, bit| if vma.flags.has(flag) { bit } else { 0 };
    let of = vma.file.map_or(0, |opened| opened.file as u64 + 1);
    MapLine {
        start: vma.start,
        end: vma.end,
        rights: right(Flags::READ, 1)
            | right(Flags::WRITE, 2)
            | right(Flags::EXEC, 4)
            | right(Flags::MAYSHARE, 8),
        of: match vma.flags.has(Flags::HUGETLB) {
            true if of == 1 => HUGE_FILE,
            true => SHARED_ANONYMOUS,
            false => of.min(SHARED_ANONYMOUS),
        },
        offset: vma.file.map_or(0, |_| vma.pgoff * PAGE),
    }
}

fn letters(vma: &Vma) -> String {
    let set = Flags::LETTERS
        .iter()
        .filter(|(flag, _)| vma.flags.has(*flag));
    let letters: Vec<&str> = set.map(|(_, letters)| *letters).collect();
    letters.join(" ")
}

/// The words of a page, by their place among all.
fn placed(page: u64, words: Words) -> [(u64, u64); 2] {
    [(2 * page, words[0]), (2 * page + 1, words[1])]
}

fn snapshot(space: &Space) -> Snapshot {
    let page = |number: u64| page_of(number * PAGE);
    let private = space.pages().map(|(number, _)| page(number));
    let words = space
        .pages()
        .flat_map(|(number, found)| placed(page(number), found.words()));
    let of_vma = |vma: &Vma| {
        let pages = (vma.start..vma.end).step_by(PAGE as usize);
        let found = pages.filter_map(|addr| {
            let words = space.file_words(vma, addr)?;
            Some(placed(page_of(addr), words))
        });
        found.flatten().collect::<Vec<_>>()
    };
    let file = |file: &File| FileShot {
        bytes: file.bytes(),
        words: (0..file.pages()).flat_map(|at| file.page(at)).collect(),
    };
    Snapshot {
        maps: space.vmas().iter().map(line_of).collect(),
        present: Some(bits(private)),
        words: words.filter(|(_, word)| *word != 0).collect(),
        of_files: space.vmas().iter().flat_map(of_vma).collect(),
        files: Some(space.files().iter().take(FILES).map(file).collect()),
        pool: None,
        flags: Some(space.vmas().iter().map(letters).collect()),
    }
}

/// What may be accessed is looked at.
fn huge_snapshot(space: &Space) -> Snapshot {
    let numbers = |bit: u64| HUGE_START / HUGE + hot(bit);
    let own: BTreeMap<u64, Words> = space.huge_pages().collect();
    let bit_of = |page: u64| (0..HOT).find(|bit| numbers(*bit) == page);
    let open = |page: &u64| {
        let vma = space.at(page * HUGE);
        vma.is_some_and(|vma| vma.flags.has(Flags::ACCESS))
    };
    let words = own.iter().filter(|(page, _)| open(page));
    let words = words.filter_map(|(page, words)| Some(placed(bit_of(*page)?, *words)));
    let of_file = |bit: u64| {
        let at = numbers(bit) * HUGE;
        let vma = space.at(at).filter(|vma| vma.flags.has(Flags::ACCESS))?;
        let file = &space.files()[vma.file?.file];
        let index = vma.pgoff * PAGE / HUGE + (at - vma.start) / HUGE;
        Some(placed(bit, file.page(index)))
    };
    let file = |file: &File| FileShot {
        bytes: file.bytes(),
        words: (0..file.pages())
            .flat_map(|at| placed(at, file.page(at)))
            .filter(|(_, word)| *word != 0)
            .flat_map(|(place, word)| [place, word])
            .collect(),
    };
    Snapshot {
        maps: space.vmas().iter().map(line_of).collect(),
        present: Some(bits(own.keys().filter_map(|page| bit_of(*page)))),
        words: words.flatten().filter(|(_, word)| *word != 0).collect(),
        of_files: (0..HOT).filter_map(of_file).flatten().collect(),
        files: Some(space.files().iter().take(1).map(file).collect()),
        pool: Some(space.huge_pool().counts()),
        flags: Some(space.vmas().iter().map(letters).collect()),
    }
}

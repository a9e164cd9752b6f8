//! A storm: threads that store to memory which another one discards, replaces, protects, unmaps,
//! moves, forks and swaps out meanwhile. No store may be lost, and none may reach what the memory
//! no longer is.
//!
//! `storm [TOUCHERS [ROUNDS [WHAT..]]]`. A toucher stores numbers that grow, to its own word of
//! each page in turn, and looks at each. What the director does to the pages either leaves that
//! legal, and then all words are compared with what was stored last; or the touchers stop before,
//! keep what their CPUs have cached of the pages, and let the kernel store there for them, which it
//! must refuse, as their own stores would be. WHAT are some of discard, replace, page-out, fork,
//! protect, move, unmap; all without. With `huge` among them the memory has huge pages, which are
//! not swapped out. With `sparse` the pages lie a GiB apart, so that page tables come and go with
//! them; the kernel must promise more memory than there is.
//!
//! A frame that was freed is likely to be used again at once, in the same place, where a stale
//! translation does no harm. So the director touches other memory first, the *decoy*, which then
//! has the frame, and stays zero if no store reaches it.
//!
//! Exits with 0 if all was right, with 1 at the first thing that was not.
#![no_std]
#![no_main]

use minflt_guest::{
    Args, Ended, Errno, Mapping, PAGE, Process, Prot, Sys, Word, program, say, together,
};

program!(main);

/// Pages that all touchers share.
const PAGES: u64 = 8;
/// The most touchers: each has a word of each page.
const MOST: usize = 32;
/// Looks at a word before another thread may have the CPU.
const PATIENCE: u32 = 2_000;

/// What touchers do, in the low byte, and how many orders there were, above.
static ORDER: Word = Word::new(RUN);
/// The order that each toucher has seen.
static SEEN: [Word; MOST] = [const { Word::new(0) }; MOST];
/// The last number that each toucher has stored.
static PROGRESS: [Word; MOST] = [const { Word::new(0) }; MOST];
/// Of how many pages the kernel stored to for each toucher, when it was last asked.
static STORED: [Word; MOST] = [const { Word::new(0) }; MOST];

/// Store.
const RUN: u32 = 0;
/// Wait, and touch nothing.
const PAUSE: u32 = 1;
/// Have the kernel store to all pages.
const PROBE: u32 = 2;
/// Come to an end.
const STOP: u32 = 3;

fn main(args: Args) -> i32 {
    let number = |index, default| match args.get(index) {
        Some(word) => word.parse().ok().filter(|number| *number > 0),
        None => Some(default),
    };
    let (Some(touchers), Some(rounds)) = (number(1, 2_u64), number(2, 20_u64)) else {
        say!("storm: TOUCHERS and ROUNDS are numbers from 1 on");
        return 2;
    };
    if touchers > MOST as u64 {
        say!("storm: {touchers} touchers, at most {MOST}");
        return 2;
    }
    let mut does = [false; WHAT.len()];
    let (mut huge, mut sparse) = (false, false);
    for name in (3..).map_while(|index| args.get(index)) {
        match (name, WHAT.iter().position(|what| *what == name)) {
            ("huge", _) => huge = true,
            ("sparse", _) => sparse = true,
            (_, Some(index)) => does[index] = true,
            (_, None) => {
                say!("storm: unknown: {name}; there are: huge, sparse, {WHAT:?}");
                return 2;
            }
        }
    }
    if huge && sparse {
        say!("storm: huge and sparse exclude each other");
        return 2;
    }
    if does == [false; WHAT.len()] {
        does = WHAT.map(|what| !huge || what != "page-out");
    }
    let storm = Storm {
        touchers: touchers as usize,
        rounds,
        does,
    };
    if huge {
        storm.run(|| Mapping::huge(PAGES))
    } else if sparse {
        storm.run(|| Mapping::sparse(PAGES))
    } else {
        storm.run(|| Mapping::new(PAGES))
    }
}

/// What was asked for.
struct Storm {
    touchers: usize,
    rounds: u64,
    does: [bool; WHAT.len()],
}

impl Storm {
    fn run<const BYTES: u64>(&self, map: impl Fn() -> Result<Mapping<BYTES>, Errno>) -> i32 {
        let Self {
            touchers,
            rounds,
            does,
        } = *self;
        let (Ok(memory), Ok(away), Ok(decoy)) = (map(), map(), map()) else {
            say!("storm: no memory");
            return 2;
        };
        // The words that threads talk by are written before: what becomes of their page then is
        // none of the director's work, and is not to go wrong with it.
        for words in [&SEEN, &PROGRESS, &STORED] {
            words.iter().for_each(|word| word.store(0));
        }
        ORDER.store(RUN);
        let ran = together(touchers + 1, &|index| match index.checked_sub(1) {
            None => {
                let director = Director {
                    memory: &memory,
                    away: &away,
                    decoy: &decoy,
                    does,
                    touchers,
                };
                for round in 0..rounds {
                    director.round(round);
                }
                director.order(STOP);
            }
            Some(toucher) => touch(&memory, toucher as usize),
        });
        assert_eq!(ran, Ok(()), "threads start");
        say!("storm: {rounds} rounds, {touchers} touchers, no store lost");
        0
    }
}

/// What the director can do.
const WHAT: [&str; 7] = [
    "discard", "replace", "page-out", "fork", "protect", "move", "unmap",
];

/// Where toucher `who` has its word of a page of a mapping. Of a huge one, in the last part.
const fn word<const BYTES: u64>(_: &Mapping<BYTES>, who: usize, page: u64) -> u64 {
    (page + 1) * BYTES - PAGE + 8 * who as u64
}

/// The end, at the first thing that is not right.
fn wrong(text: core::fmt::Arguments<'_>) -> ! {
    say!("storm: {text}");
    Sys::exit(1)
}

fn touch<const BYTES: u64>(memory: &Mapping<BYTES>, who: usize) {
    let mut last = 0;
    let mut seen = u32::MAX;
    let mut idle = 0;
    loop {
        let order = ORDER.load();
        match order & 0xff {
            RUN => {
                last += 1;
                let at = word(memory, who, last % PAGES);
                memory.store(at, last);
                let found = memory.load(at);
                // It may have been discarded since; nothing else may have happened to it.
                if found != last && found != 0 {
                    wrong(format_args!("stored {last}, and found {found}"));
                }
                PROGRESS[who].store(last as u32);
            }
            PAUSE => pause(&mut idle),
            PROBE if order != seen => {
                let stored = (0..PAGES).filter(|page| {
                    let stored = memory.kernel_store(word(memory, MOST, *page));
                    stored != Err(Errno::EFAULT)
                });
                STORED[who].store(stored.count() as u32);
            }
            PROBE => pause(&mut idle),
            _ => return,
        }
        if order != seen {
            seen = order;
            SEEN[who].store(order);
        }
    }
}

/// Lets others run now and then. A toucher that has its CPU alone keeps it, and what that caches.
#[expect(
    clippy::disallowed_methods,
    reason = "a program waits on the CPU itself, without a machine of ours"
)]
fn pause(idle: &mut u32) {
    *idle += 1;
    if *idle == PATIENCE {
        *idle = 0;
        // It always succeeds.
        let _ = Sys::sched_yield();
    }
    core::hint::spin_loop();
}

struct Director<'m, const BYTES: u64> {
    memory: &'m Mapping<BYTES>,
    away: &'m Mapping<BYTES>,
    decoy: &'m Mapping<BYTES>,
    touchers: usize,
    does: [bool; WHAT.len()],
}

impl<const BYTES: u64> Director<'_, BYTES> {
    fn round(&self, round: u64) {
        // Each page in turn, and all of them.
        let (first, count) = if round.is_multiple_of(2) {
            (0, PAGES)
        } else {
            (round / 2 % PAGES, 1)
        };
        let memory = self.memory;
        self.while_running("discard", || memory.discard(first, count));
        self.while_running("replace", || memory.replace(first, count));
        self.while_running("page-out", || memory.page_out(first, count));
        self.while_running("fork", || self.fork());
        self.while_paused("protect", || {
            self.refused(memory.protect(0, PAGES, Prot::Read))?;
            memory.protect(0, PAGES, Prot::ReadWrite)
        });
        self.while_paused("move", || {
            self.refused(memory.move_to(self.away))?;
            self.holds("move, there", self.away);
            self.away.move_to(memory)?;
            self.away.replace(0, PAGES)
        });
        // The contents go with the mapping.
        if self.does("unmap") {
            self.order(PAUSE);
            self.done("unmap", self.refused(memory.unmap(0, PAGES)));
            self.done("map again", memory.replace(0, PAGES));
            self.order(RUN);
            self.stores_go_on("unmap");
        }
    }

    /// Whether the director is to do this.
    fn does(&self, what: &str) -> bool {
        let mut known = WHAT.iter().zip(self.does);
        known.any(|(name, does)| does && *name == what)
    }

    /// Does `work` while touchers store, and then looks whether their words have what they stored.
    fn while_running(&self, what: &str, work: impl FnOnce() -> Result<(), Errno>) {
        if self.does(what) {
            self.done(what, work());
            self.stores_go_on(what);
            self.order(PAUSE);
            self.holds(what, self.memory);
            self.order(RUN);
        }
    }

    /// Does `work` while they do not store.
    fn while_paused(&self, what: &str, work: impl FnOnce() -> Result<(), Errno>) {
        if self.does(what) {
            self.order(PAUSE);
            self.done(what, work());
            self.holds(what, self.memory);
            self.order(RUN);
            self.stores_go_on(what);
        }
    }

    fn done(&self, what: &str, result: Result<(), Errno>) {
        if let Err(error) = result {
            wrong(format_args!("{what}: {error:?}"));
        }
    }

    /// After `result`, the kernel must refuse to store for each toucher, on its CPU.
    fn refused(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        result?;
        self.order(PROBE);
        for (who, stored) in STORED[..self.touchers].iter().enumerate() {
            let stored = stored.load();
            if stored != 0 {
                wrong(format_args!(
                    "a store went through: toucher {who}, {stored} of {PAGES} pages"
                ));
            }
        }
        Ok(())
    }

    /// A child finds its memory as it was, whatever touchers store meanwhile.
    fn fork(&self) -> Result<(), Errno> {
        let ended = Process::child(|| {
            let sum = || {
                let words = (0..self.touchers).flat_map(|who| {
                    (0..PAGES).map(move |page| self.memory.load(word(self.memory, who, page)))
                });
                words.fold(0_u64, |sum, word| sum.rotate_left(5) ^ word)
            };
            let first = sum();
            i32::from((0..200).any(|_| sum() != first))
        })?;
        if ended != Ended::Exited(0) {
            wrong(format_args!("a store reached a child: {ended}"));
        }
        Ok(())
    }

    /// `what` is done: each toucher stores to each page now, and its stores are there, and nowhere
    /// else.
    fn stores_go_on(&self, what: &str) {
        let mut from = [0; MOST];
        for (from, progress) in from.iter_mut().zip(&PROGRESS) {
            *from = progress.load();
        }
        for page in 0..PAGES {
            self.decoy.store(word(self.decoy, MOST, page), 1);
        }
        for (who, from) in from[..self.touchers].iter().enumerate() {
            // The store under way may have begun before; the one behind it has not.
            let stored = u64::from(self.await_stores(who, *from, 2));
            let found = self.memory.load(word(self.memory, who, stored % PAGES));
            if found < stored {
                wrong(format_args!(
                    "{what}: a store is lost: toucher {who} stored {stored}, then found {found}"
                ));
            }
        }
        for (who, from) in from[..self.touchers].iter().enumerate() {
            self.await_stores(who, *from, PAGES as u32 + 2);
            for page in 0..PAGES {
                let found = self.decoy.load(word(self.decoy, who, page));
                if found != 0 {
                    wrong(format_args!(
                        "{what}: store {found} of toucher {who} reached other memory"
                    ));
                }
            }
        }
        self.done("discard the decoy", self.decoy.discard(0, PAGES));
    }

    /// Waits until toucher `who` has stored `count` times since `from`; its progress then.
    fn await_stores(&self, who: usize, from: u32, count: u32) -> u32 {
        let mut idle = 0;
        loop {
            let progress = PROGRESS[who].load();
            if progress.wrapping_sub(from) >= count {
                return progress;
            }
            pause(&mut idle);
        }
    }

    /// Whether each word has the number that its toucher, which does not store, has stored last.
    fn holds(&self, what: &str, memory: &Mapping<BYTES>) {
        for (who, progress) in PROGRESS[..self.touchers].iter().enumerate() {
            let last = u64::from(progress.load());
            for stored in last - (PAGES - 1)..=last {
                let found = memory.load(word(memory, who, stored % PAGES));
                if found != stored {
                    wrong(format_args!(
                        "{what}: a store is lost: toucher {who} stored {stored}, found {found}"
                    ));
                }
            }
        }
    }

    /// Gives an order, and waits until each toucher has seen it.
    fn order(&self, what: u32) {
        let order = (ORDER.load() & !0xff).wrapping_add(0x100) | what;
        ORDER.store(order);
        let touchers = if what == STOP { 0 } else { self.touchers };
        for seen in &SEEN[..touchers] {
            let mut idle = 0;
            while seen.load() != order {
                pause(&mut idle);
            }
        }
    }
}

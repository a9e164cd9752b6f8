//! A machine that writes down every access, and what an action did, place by place.

use core::cell::RefCell;
use core::fmt;
use minflt_addr::VirtAddr;
use minflt_host::{Door, HostWith};
use minflt_mm::describe::{self, Field};
use minflt_mm::{Config, MmHandle, Place, Prot, Swap, System, era};
use minflt_pgtable::X86_64;
use minflt_sync::{Instance, Kind};
use minflt_tests::world::{boot_on, machine};
use std::collections::BTreeMap;

pub(super) const PAGE: u64 = 4096;
/// Where mappings of these tests begin: at the start of a table.
pub(super) const BASE: u64 = 1 << 30;

/// An access hook that writes down what passes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted;

/// The machine of these tests.
pub(super) type M = HostWith<X86_64, Noted>;

thread_local! {
    /// What was accessed, while that is written down.
    static ACCESSES: RefCell<Option<Vec<(usize, Kind)>>> = const { RefCell::new(None) };
}

/// What is done before an access of some kind to an address.
pub(super) type Hook = Box<dyn FnMut(usize, Kind)>;

thread_local! {
    /// What the thread does before each access, if anything.
    static BEFORE_EACH: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Has this thread do something before each access, or nothing any more.
pub(super) fn before_each(hook: Option<Hook>) {
    drop(BEFORE_EACH.replace(hook));
}

impl Door for Noted {
    fn before(at: *const u8, _len: usize, kind: Kind) {
        BEFORE_EACH.with_borrow_mut(|hook| {
            if let Some(hook) = hook {
                hook(at.addr(), kind);
            }
        });
        ACCESSES.with_borrow_mut(|all| {
            if let Some(all) = all {
                all.push((at.addr(), kind));
            }
        });
    }
}

/// How often a kind of place was accessed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Count {
    /// Loads, plain ones included.
    pub(super) loads: u64,
    /// Stores, plain ones included.
    pub(super) stores: u64,
    /// Read-modify-writes, failed ones included.
    pub(super) exchanges: u64,
}

/// What an action did to memory: counts by object and field, whichever object of its kind it was.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Did {
    places: BTreeMap<(&'static str, &'static str), Count>,
    locks: BTreeMap<&'static str, u64>,
}

impl Did {
    fn note(&mut self, place: &describe::Place, kind: Kind) {
        let field = match place.field {
            Field::Named(name) => name,
            Field::Entry(_) => "entry",
            Field::Byte(_) => "",
        };
        self.count((place.object, field), kind);
        if kind == Kind::Rmw
            && let Some(lock) = place.lock()
        {
            *self.locks.entry(lock).or_default() += 1;
        }
    }

    fn count(&mut self, place: (&'static str, &'static str), kind: Kind) {
        let count = self.places.entry(place).or_default();
        match kind {
            Kind::Load | Kind::PlainRead => count.loads += 1,
            Kind::Store | Kind::PlainWrite => count.stores += 1,
            Kind::Rmw => count.exchanges += 1,
        }
    }

    /// Accesses to `field` of objects called `object`.
    pub(super) fn to(&self, object: &'static str, field: &'static str) -> Count {
        let count = self.places.get(&(object, field));
        count.copied().unwrap_or_default()
    }

    /// Accesses to objects called `object`, whatever the field.
    pub(super) fn all(&self, object: &'static str) -> Count {
        let of = self.places.iter().filter(|((name, _), _)| *name == object);
        of.fold(Count::default(), |sum, (_, count)| Count {
            loads: sum.loads + count.loads,
            stores: sum.stores + count.stores,
            exchanges: sum.exchanges + count.exchanges,
        })
    }

    /// Read-modify-writes of words that are locks of a class, as `Place::lock` calls it.
    pub(super) fn lock(&self, class: &'static str) -> u64 {
        self.locks.get(class).copied().unwrap_or(0)
    }

    /// Read-modify-writes in all.
    pub(super) fn exchanges(&self) -> u64 {
        self.places.values().map(|count| count.exchanges).sum()
    }
}

impl fmt::Debug for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((object, field), count) in &self.places {
            let Count {
                loads,
                stores,
                exchanges,
            } = count;
            writeln!(
                f,
                "{object}.{field}: {loads} loads, {stores} stores, {exchanges} exchanges"
            )?;
        }
        writeln!(f, "{:?}", self.locks)
    }
}

/// A system with one address space, and the CPU that runs the test.
pub(super) struct World<'w> {
    pub(super) sys: &'w System<M>,
    pub(super) mm: &'w MmHandle<'w, M>,
}

impl World<'_> {
    /// What `action` does.
    pub(super) fn did<T>(&self, action: impl FnOnce() -> T) -> Did {
        ACCESSES.set(Some(Vec::new()));
        drop(action());
        let ram = self.sys.machine().ram();
        let mut did = Did::default();
        for (at, kind) in ACCESSES.take().unwrap_or_default() {
            let offset = at.checked_sub(ram.base.addr());
            match offset.filter(|offset| *offset < ram.bytes) {
                Some(offset) => did.note(&self.sys.describe(offset as u64), kind),
                None => did.count(("elsewhere", ""), kind),
            }
        }
        did
    }

    /// Maps private memory at page `n`.
    pub(super) fn map(&self, n: u64, pages: u64) {
        let place = Place::Fixed(page(n));
        let mapped = self.mm.mmap(place, pages * PAGE, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(page(n)));
    }

    /// Maps private memory at page `n`, and stores to all of it.
    pub(super) fn map_and_touch(&self, n: u64, pages: u64) {
        self.map(n, pages);
        (n..n + pages).for_each(|n| self.touch(n));
    }

    /// Stores to page `n`.
    pub(super) fn touch(&self, n: u64) {
        assert_eq!(self.mm.thread().store(page(n), n), Ok(()));
    }

    /// Loads from page `n`.
    pub(super) fn load(&self, n: u64) {
        assert!(self.mm.thread().load(page(n)).is_ok(), "page {n}");
    }
}

/// The start of a page.
pub(super) fn page(n: u64) -> VirtAddr {
    VirtAddr(BASE + n * PAGE)
}

/// The choices of an era.
pub(super) fn of(name: &str) -> Config {
    era(name).expect("an era").config
}

/// Runs a test under a configuration, on a machine of two nodes of a CPU each, of which only the
/// first runs anything. All memory is swapped to memory.
pub(super) fn with<T>(config: Config, test: impl FnOnce(&World<'_>) -> T) -> T {
    let machine = machine(2, 160 << 20);
    let swap = Swap::Memory { pages: 1024 };
    let sys = boot_on::<M>(machine.with_nodes(2), config, swap);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let value = test(&World { sys: &sys, mm: &mm });
    drop(mm);
    sys.check_ledger(&[]).expect("nothing is left");
    value
}

/// What one thing more adds: what is counted of nine, less what is counted of one, by eight.
pub(super) struct Each {
    one: Did,
    nine: Did,
}

impl Each {
    /// `test` does what is counted to as many things as it is told.
    pub(super) fn of(config: Config, test: impl Fn(&World<'_>, u64) -> Did) -> Self {
        Self {
            one: with(config, |w| test(w, 1)),
            nine: with(config, |w| test(w, 9)),
        }
    }

    /// How much one more adds to a number.
    pub(super) fn adds(&self, number: impl Fn(&Did) -> u64) -> u64 {
        let more = number(&self.nine) - number(&self.one);
        assert_eq!(more % 8, 0, "not the same for each: {self:?}");
        more / 8
    }
}

impl fmt::Debug for Each {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one: {:?}\nnine: {:?}", self.one, self.nine)
    }
}

//! NUMA balancing, move_pages and mbind's moving: on two nodes, real threads and simulated ones.

use core::cell::Cell;
use core::ops::Deref;
use minflt_addr::VirtAddr;
use minflt_mm::config::{AnonRmap, Balancing};
use minflt_mm::{
    Advice, Config, Errno, Event, MempolicyError, Misplaced, Mm, MmHandle, MovePageError, NodeMask,
    NumaKnobs, Place, Policy, PolicyMode, Prot, Running, Signal, Swap, System, Thread, Which, era,
    eras_of_migration, eras_without_files,
};
use minflt_pgtable::{Mmu, X86_64};
use minflt_sim::{MachineFile, RunOptions, Sim, SimInstance, Size, TaskSpec};
use minflt_tests::world::{Machine as Real, PAGE, boot_on, machine, page};

type Simulated = Sim<X86_64, true>;

/// Two nodes, one CPU each: CPU and node have the same number.
const NODES: u32 = 2;
const RAM: u64 = 8 << 20;
/// Time between two scans, and until the first.
const PERIOD: u64 = 1_000_000;

/// A machine, and a way to run something on one of its CPUs.
trait Machine: Mmu {
    fn boot(config: Config) -> Running<Self>;
    fn on(sys: &System<Self>, cpu: u32, body: &mut dyn FnMut());
}

impl Machine for Real {
    fn boot(config: Config) -> Running<Self> {
        let machine = machine(NODES, RAM as usize).with_nodes(NODES);
        boot_on(machine, config, Swap::None)
    }

    fn on(sys: &System<Self>, cpu: u32, body: &mut dyn FnMut()) {
        let _cpu = sys.machine().enter(cpu);
        body();
    }
}

impl Machine for Simulated {
    fn boot(config: Config) -> Running<Self> {
        let mut file = MachineFile::shipped("explorer").expect("shipped");
        file.shape.cpus_per_node.value = 1.0;
        let size = Size {
            cpus: NODES,
            ram_bytes: RAM,
            max_tasks: 1,
        };
        let machine = SimInstance::new(&file, size).expect("memory");
        System::boot(machine, config).expect("boots")
    }

    fn on(sys: &System<Self>, cpu: u32, body: &mut dyn FnMut()) {
        let tasks = vec![TaskSpec::new(cpu, body)];
        let report = minflt_sim::run(sys.machine(), &RunOptions::virtual_time(), tasks);
        assert!(report.outcome.is_ok(), "{}", report.outcome);
    }
}

/// An address space that ends on CPU 0.
struct Space<'w, M: Machine> {
    world: &'w World<M>,
    mm: Option<MmHandle<'w, M>>,
}

impl<M: Machine> Deref for Space<'_, M> {
    type Target = Mm<M>;

    fn deref(&self) -> &Mm<M> {
        self.mm.as_ref().expect("not ended")
    }
}

impl<M: Machine> Drop for Space<'_, M> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            M::on(&self.world.sys, 0, &mut || drop(self.mm.take()));
        }
    }
}

/// A system whose scans come when they are asked for.
struct World<M: Machine> {
    sys: Running<M>,
    now_ns: Cell<u64>,
}

impl<M: Machine> World<M> {
    fn new(config: Config) -> Self {
        let sys = M::boot(config);
        sys.set_numa_knobs(NumaKnobs {
            scan_delay_ns: PERIOD,
            scan_period_min_ns: PERIOD,
            scan_period_max_ns: PERIOD,
            ..NumaKnobs::default()
        });
        Self {
            sys,
            now_ns: Cell::new(1),
        }
    }

    /// Runs `body` as a thread on `cpu`.
    fn on<T>(&self, mm: &Mm<M>, cpu: u32, mut body: impl FnMut(&Thread<'_, M>) -> T) -> T {
        let mut result = None;
        M::on(&self.sys, cpu, &mut || {
            result = Some(body(&mm.thread()));
        });
        result.expect("ran")
    }

    /// A scan, on CPU 0; the first look at a space only says when.
    fn scan(&self, mm: &Mm<M>) -> u64 {
        let before = self.count(Event::NumaPteUpdates);
        self.now_ns.set(self.now_ns.get() + 2 * PERIOD);
        self.on(mm, 0, |thread| thread.tick(self.now_ns.get()));
        self.count(Event::NumaPteUpdates) - before
    }

    /// Loads page `n` on `cpu`; returns its node then.
    fn load(&self, mm: &Mm<M>, cpu: u32, n: u64) -> u32 {
        self.on(mm, cpu, |thread| {
            assert_eq!(thread.load(page(n)), Ok(n + 1), "page {n}");
            thread.node_at(page(n)).expect("mapped")
        })
    }

    fn count(&self, event: Event) -> u64 {
        self.sys.count_of(event)
    }

    /// An address space of pages that CPU 0 has stored to.
    fn space(&self, pages: u64) -> Space<'_, M> {
        let mut mm = None;
        M::on(&self.sys, 0, &mut || {
            let new = self.sys.new_mm().expect("memory");
            new.mmap(Place::Fixed(page(0)), pages * PAGE, Prot::READ_WRITE)
                .expect("a hole");
            let thread = new.thread();
            (0..pages).for_each(|n| thread.store(page(n), n + 1).expect("memory"));
            thread.tick(1);
            drop(thread);
            mm = Some(new);
        });
        Space { world: self, mm }
    }

    fn fork(&self, parent: &Mm<M>) -> Space<'_, M> {
        let mut mm = None;
        M::on(&self.sys, 0, &mut || {
            mm = Some(self.sys.fork(parent).expect("memory"));
        });
        Space { world: self, mm }
    }

    fn balances(&self, spaces: &[&Mm<M>]) {
        M::on(&self.sys, 0, &mut || {
            self.sys.check_ledger(spaces).expect("adds up");
        });
    }
}

fn balancing(config: Config) -> Config {
    Config {
        balancing: Balancing::On,
        ..config
    }
}

/// Every way to hold a fault and to change entries, and every way to walk.
fn configs() -> impl Iterator<Item = (&'static str, Config)> {
    let ways = AnonRmap::ALL.iter().map(|(anon_rmap, name, _)| {
        let config = era("linux-6.15").expect("an era").config;
        (
            *name,
            Config {
                anon_rmap: *anon_rmap,
                ..config
            },
        )
    });
    eras_of_migration()
        .map(|era| (era.name, era.config))
        .chain(ways)
        .map(|(name, config)| (name, balancing(config)))
}

fn follows<M: Machine>(name: &str, config: Config) {
    let world = World::<M>::new(config);
    let mm = world.space(4);
    let counts = |world: &World<M>| {
        [
            Event::NumaHintFaults,
            Event::NumaHintFaultsLocal,
            Event::NumaPagesMigrated,
        ]
        .map(|event| world.count(event))
    };
    assert_eq!(world.scan(&mm), 4, "{name}");
    assert_eq!(world.scan(&mm), 0, "{name}: they grant nothing already");
    // The node itself; the other one; that again.
    assert_eq!(world.load(&mm, 0, 0), 0, "{name}");
    assert_eq!(counts(&world), [1, 1, 0], "{name}");
    assert_eq!(
        (1..4).map(|n| world.load(&mm, 1, n)).max(),
        Some(0),
        "{name}: once is not twice"
    );
    assert_eq!(counts(&world), [4, 1, 0], "{name}");
    assert_eq!(world.load(&mm, 1, 1), 0, "{name}: restored");
    assert_eq!(counts(&world), [4, 1, 0], "{name}");
    world.balances(&[&mm]);
    assert_eq!(world.scan(&mm), 4, "{name}");
    assert_eq!(
        (1..4).map(|n| world.load(&mm, 1, n)).min(),
        Some(1),
        "{name}: they moved"
    );
    assert_eq!(counts(&world), [7, 1, 3], "{name}");
    assert_eq!(
        world.load(&mm, 1, 0),
        0,
        "{name}: its last fault was on its own node"
    );
    assert_eq!(counts(&world), [8, 1, 3], "{name}");
    assert_eq!(world.count(Event::PagesMigrated), 3, "{name}");
    world.balances(&[&mm]);
    // A store, too, and it may store at once: nobody else has the page.
    let reused = world.count(Event::Reuse);
    world.scan(&mm);
    world.on(&mm, 1, |thread| {
        for n in 0..4 {
            assert_eq!(thread.store(page(n), n + 1), Ok(()), "{name}");
        }
    });
    assert_eq!(counts(&world), [12, 4, 4], "{name}");
    assert_eq!(world.count(Event::Reuse), reused, "{name}");
    assert_eq!(
        (0..4).map(|n| world.load(&mm, 0, n)).min(),
        Some(1),
        "{name}"
    );
    world.balances(&[&mm]);
}

#[test]
fn a_page_follows_who_uses_it_twice_running() {
    for (name, config) in configs() {
        follows::<Simulated>(name, config);
        follows::<Real>(name, config);
    }
}

#[test]
fn a_page_that_two_nodes_use_in_turn_stays() {
    let config = era("numa-balancing-2012").expect("an era").config;
    let world = World::<Simulated>::new(config);
    let mm = world.space(1);
    for round in 0..6 {
        assert_eq!(world.scan(&mm), 1);
        assert_eq!(world.load(&mm, 1 - round % 2, 0), 0);
    }
    assert_eq!(world.count(Event::NumaHintFaults), 6);
    assert_eq!(world.count(Event::NumaPagesMigrated), 0);
}

#[test]
fn where_balancing_is_off_nothing_is_taken_away() {
    for name in ["linux-3.7", "linux-6.15"] {
        let world = World::<Simulated>::new(era(name).expect("an era").config);
        let mm = world.space(3);
        assert_eq!(world.scan(&mm) + world.scan(&mm), 0, "{name}");
    }
}

/// What mprotect took away is no hint, and a hint lets nobody do what the mapping does not allow.
fn protected<M: Machine>(name: &str, config: Config) {
    let world = World::<M>::new(config);
    let mm = world.space(4);
    assert_eq!(world.scan(&mm), 4, "{name}");
    world.on(&mm, 1, |thread| {
        mm.mprotect(page(0), PAGE, Prot::NONE).expect("mapped");
        mm.mprotect(page(1), PAGE, Prot::READ).expect("mapped");
        assert_eq!(thread.load(page(0)), Err(Signal::AccErr), "{name}");
        assert_eq!(thread.store(page(0), 9), Err(Signal::AccErr), "{name}");
        assert_eq!(thread.store(page(1), 9), Err(Signal::AccErr), "{name}");
        assert_eq!(thread.load(page(1)), Ok(2), "{name}");
    });
    // A scan passes by what nobody may use; and makes what is for loads fault.
    assert_eq!(
        world.scan(&mm),
        1,
        "{name}: one of four, and two that fault already"
    );
    let hinted = world.count(Event::NumaHintFaults);
    world.on(&mm, 1, |thread| {
        assert_eq!(thread.load(page(0)), Err(Signal::AccErr), "{name}");
        assert_eq!(thread.store(page(1), 9), Err(Signal::AccErr), "{name}");
        assert_eq!(thread.load(page(1)), Ok(2), "{name}");
        assert_eq!(world.count(Event::NumaHintFaults), hinted + 1, "{name}");
        // Back again, it is as it was; a store to it is no hinting fault.
        mm.mprotect(page(0), 2 * PAGE, Prot::READ_WRITE)
            .expect("mapped");
        assert_eq!(thread.load(page(0)), Ok(1), "{name}");
        assert_eq!(thread.store(page(0), 1), Ok(()), "{name}");
        assert_eq!(thread.store(page(1), 2), Ok(()), "{name}");
        assert_eq!(world.count(Event::NumaHintFaults), hinted + 1, "{name}");
    });
    world.balances(&[&mm]);
}

#[test]
fn a_hinting_fault_grants_what_the_mapping_does_and_no_more() {
    for era in eras_without_files() {
        protected::<Simulated>(era.name, balancing(era.config));
    }
    let config = balancing(era("linux-6.15").expect("an era").config);
    protected::<Real>("linux-6.15", config);
}

/// Pages that others share are never made to fault; those that fault already stay everybody's own.
#[test]
fn fork_and_discard_find_hinting_entries_like_others() {
    for (name, config) in configs() {
        let world = World::<Simulated>::new(config);
        let mm = world.space(4);
        assert_eq!(world.scan(&mm), 4, "{name}");
        let child = world.fork(&mm);
        world.on(&child, 1, |thread| {
            assert_eq!(thread.load(page(0)), Ok(1), "{name}");
            assert_eq!(thread.store(page(0), 70), Ok(()), "{name}");
            assert_eq!(thread.store(page(1), 80), Ok(()), "{name}");
            assert_eq!(thread.load(page(2)), Ok(3), "{name}");
        });
        world.on(&mm, 0, |thread| {
            assert_eq!(thread.load(page(0)), Ok(1), "{name}");
            assert_eq!(thread.load(page(1)), Ok(2), "{name}");
            mm.madvise(page(3), PAGE, Advice::DontNeed).expect("mapped");
            assert_eq!(thread.load(page(3)), Ok(0), "{name}");
        });
        assert_eq!(world.scan(&mm), 2, "{name}: what the child copied");
        world.balances(&[&mm, &child]);
    }
}

#[test]
fn no_more_pages_move_to_a_node_than_its_share_of_time() {
    let config = era("numa-balancing-2012").expect("an era").config;
    let world = World::<Simulated>::new(config);
    let knobs = NumaKnobs {
        rate_window_ns: u64::MAX,
        rate_bytes: 3 * PAGE,
        ..world.sys.numa_knobs()
    };
    world.sys.set_numa_knobs(knobs);
    assert_eq!(world.sys.numa_knobs(), knobs);
    let mm = world.space(8);
    for _ in 0..3 {
        assert_eq!(world.scan(&mm), 8);
        (0..8).for_each(|n| {
            world.load(&mm, 1, n);
        });
    }
    assert_eq!(world.count(Event::NumaPagesMigrated), 3);
    assert_eq!((0..8).map(|n| world.load(&mm, 1, n)).sum::<u32>(), 3);
}

/// Ten pages, four a scan: around in three scans. And while all faults come from the pages' own
/// nodes, each wait is twice the last.
#[test]
fn scans_go_around_and_become_rarer_where_pages_are_where_they_belong() {
    let config = era("numa-balancing-2012").expect("an era").config;
    let world = World::<Simulated>::new(config);
    let knobs = NumaKnobs {
        scan_bytes: 4 * PAGE,
        ..world.sys.numa_knobs()
    };
    world.sys.set_numa_knobs(knobs);
    let mm = world.space(600);
    // Whole tables are gone through: 2 MiB of addresses each.
    let first = world.scan(&mm);
    assert_eq!(first, 512 - page(0).0 / PAGE % 512);
    assert_eq!(mm.numa_rounds(), 0);
    assert_eq!(world.scan(&mm), 600 - first);
    assert_eq!(world.scan(&mm), 0, "all grant nothing");
    assert!(mm.numa_rounds() >= 1);
    world.sys.set_numa_knobs(NumaKnobs {
        scan_period_max_ns: 4 * PERIOD,
        ..knobs
    });
    // Nothing was hinted: twice as long, and again.
    let due = || {
        let mut waited = 0;
        loop {
            waited += 1;
            world.now_ns.set(world.now_ns.get() + PERIOD);
            let now = world.now_ns.get();
            (0..600).for_each(|n| {
                world.load(&mm, 0, n);
            });
            let before = world.count(Event::NumaPteUpdates);
            world.on(&mm, 0, |thread| thread.tick(now));
            if world.count(Event::NumaPteUpdates) > before {
                return waited;
            }
            assert!(waited < 20);
        }
    };
    let waits: Vec<_> = (0..4).map(|_| due()).collect();
    assert_eq!(waits[2..], [4, 4]);
    assert!(waits[0] < 4, "{waits:?}");
}

fn statuses<M: Machine>(
    world: &World<M>,
    mm: &Mm<M>,
    pages: &[(u64, u32)],
    which: Which,
) -> (Vec<i32>, Result<u64, MovePageError>) {
    let mut told = Vec::new();
    let mut ended = Ok(0);
    world.on(mm, 0, |_| {
        let list = pages.iter().map(|(n, node)| (page(*n), *node));
        ended = mm.move_pages(list, which, |status| told.push(number(status)));
    });
    (told, ended)
}

/// As Linux writes it.
fn number(status: Result<u32, MovePageError>) -> i32 {
    match status {
        Ok(node) => node as i32,
        Err(why) => -Errno::from(why).0,
    }
}

fn moved<M: Machine>(name: &str, config: Config) {
    let world = World::<M>::new(config);
    let mm = world.space(6);
    world.on(&mm, 0, |thread| {
        // 0, 1, 2 there; 3 for nobody; 4 the zero page; 5 not there; 6 not mapped.
        mm.mprotect(page(3), PAGE, Prot::NONE).expect("mapped");
        mm.madvise(page(4), 2 * PAGE, Advice::DontNeed)
            .expect("mapped");
        assert_eq!(thread.load(page(4)), Ok(0), "{name}");
        mm.madvise(page(0), PAGE, Advice::DontFork).expect("mapped");
    });
    let all = [(0, 1), (1, 0), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)];
    let (told, ended) = statuses(&world, &mm, &all, Which::Own);
    assert_eq!(told, [1, 0, 1, 1, -14, -2, -14], "{name}");
    assert_eq!(ended, Ok(0), "{name}");
    // Unaligned addresses mean their pages; a node that is not there ends the call.
    let (told, ended) = statuses(&world, &mm, &[(1, 1), (2, 2), (2, 0)], Which::Own);
    assert_eq!(
        (told, ended),
        (vec![1], Err(MovePageError::NoNode)),
        "{name}"
    );
    let mut there = Vec::new();
    world.on(&mm, 1, |thread| {
        let list = (0..7).map(|n| VirtAddr(page(n).0 + 16));
        mm.page_nodes(list, |status| there.push(number(status)));
        // And they hold what they did.
        (0..3).for_each(|n| assert_eq!(thread.load(page(n)), Ok(n + 1), "{name}"));
        assert_eq!(thread.load(page(3)), Err(Signal::AccErr), "{name}");
    });
    assert_eq!(there, [1, 1, 1, 1, -14, -2, -14], "{name}");
    // What a child maps too, is moved for both, or not.
    let child = world.fork(&mm);
    let back = [(0, 0), (1, 0), (2, 1)];
    let (told, _) = statuses(&world, &mm, &back, Which::Own);
    assert_eq!(told, [0, -13, 1], "{name}");
    let (told, _) = statuses(&world, &mm, &back, Which::All);
    assert_eq!(told, [0, 0, 1], "{name}");
    world.on(&child, 0, |thread| {
        assert_eq!(thread.load(page(1)), Ok(2), "{name}");
        assert_eq!(thread.node_at(page(1)), Ok(0), "{name}");
        assert_eq!(thread.store(page(1), 5), Ok(()), "{name}");
    });
    world.on(&mm, 0, |thread| {
        assert_eq!(thread.load(page(1)), Ok(2), "{name}")
    });
    world.balances(&[&mm, &child]);
}

#[test]
fn move_pages_tells_of_each_page_what_linux_does() {
    for era in eras_of_migration() {
        moved::<Simulated>(era.name, era.config);
    }
    moved::<Real>("linux-6.15", era("linux-6.15").expect("an era").config);
}

#[test]
fn mbind_moves_pages_that_are_elsewhere() {
    for era in eras_of_migration() {
        let world = World::<Simulated>::new(era.config);
        let mm = world.space(8);
        let name = era.name;
        let bind = |mode, nodes, misplaced| {
            let policy = Policy::new(mode, NodeMask(nodes));
            world.on(&mm, 0, |_| mm.mbind(page(0), 8 * PAGE, policy, misplaced))
        };
        let nodes = || (0..8).map(|n| world.load(&mm, 0, n)).collect::<Vec<_>>();
        let (own, all) = (Which::Own, Which::All);
        assert_eq!(bind(PolicyMode::Bind, 2, Misplaced::Stay), Ok(()), "{name}");
        assert_eq!(nodes(), [0; 8], "{name}");
        assert_eq!(
            bind(PolicyMode::Bind, 2, Misplaced::Move(own)),
            Ok(()),
            "{name}"
        );
        assert_eq!(nodes(), [1; 8], "{name}");
        let preferred = bind(PolicyMode::Preferred, 1, Misplaced::MoveOrFail(own));
        assert_eq!(preferred, Ok(()), "{name}");
        assert_eq!(nodes(), [0; 8], "{name}");
        // Each page where its number says; those of the set that are there stay.
        assert_eq!(
            bind(PolicyMode::Bind, 3, Misplaced::Move(own)),
            Ok(()),
            "{name}"
        );
        assert_eq!(nodes(), [0; 8], "{name}");
        // Of a child as well: passed over, or moved for both.
        let child = world.fork(&mm);
        let strict = bind(PolicyMode::Bind, 2, Misplaced::MoveOrFail(own));
        assert_eq!(strict, Ok(()), "{name}: nobody asked for shared pages");
        assert_eq!(nodes(), [0; 8], "{name}");
        assert_eq!(
            bind(PolicyMode::Bind, 2, Misplaced::MoveOrFail(all)),
            Ok(()),
            "{name}"
        );
        assert_eq!(nodes(), [1; 8], "{name}");
        world.balances(&[&mm, &child]);
        drop(child);
        assert_eq!(
            bind(PolicyMode::Default, 0, Misplaced::Move(own)),
            Ok(()),
            "{name}"
        );
        assert_eq!(nodes(), [0; 8], "{name}: to the caller's node");
    }
}

/// A page that is pinned can go nowhere; the policy holds for what comes.
#[test]
fn what_cannot_be_moved_is_told() {
    let world = World::<Simulated>::new(era("linux-6.15").expect("an era").config);
    let mm = world.space(2);
    let policy = Policy::new(PolicyMode::Bind, NodeMask(2));
    world.on(&mm, 0, |thread| {
        let pin = thread.pin_fast(page(0), minflt_pgtable::Access::Write);
        let bound = mm.mbind(page(0), 2 * PAGE, policy, Misplaced::MoveOrFail(Which::Own));
        assert_eq!(bound, Err(MempolicyError::Misplaced));
        assert_eq!(mm.get_mempolicy_at(page(0)), Ok(policy));
        let mut told = Vec::new();
        let left = mm.move_pages([(page(0), 1), (page(1), 1)], Which::Own, |it| told.push(it));
        assert_eq!(left, Ok(1));
        assert_eq!(told, [Err(MovePageError::Busy), Ok(1)]);
        drop(pin.expect("its own"));
        let left = mm.move_pages([(page(0), 1)], Which::Own, |it| told.push(it));
        assert_eq!((left, told[2]), (Ok(0), Ok(1)));
    });
}

//! Arguments that no program means: addresses and lengths near 0, the end of user space, half and
//! all of what a word holds. Whatever a call is given, it answers, and touches nothing it was not
//! asked for.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_addr::{VirtAddr, VirtRange};
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{
    Advice, Config, FileHandle, Force, Growth, LockAll, LockWhen, MapRequest, Mapped, Misplaced,
    Mm, Msync, NodeMask, Place, Policy, PolicyMode, Populate, Prot, Remap, RemapRequest, Reserve,
    Sharing, Signal, System, Thread, UffdMode, Wake, Which, WriteProtected, era,
};
use minflt_pgtable::{Access, I386Pae, Paging, RiscvSv39, X86_64};

/// Calls of each configuration; of all together more than 100,000.
const CALLS: u64 = 26_000;
/// What a page that nothing may touch holds.
const KEPT: u64 = 0x1234_5678_9abc_def0;

/// Numbers drawn from a seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }

    /// A value near one at which something begins or ends, or near the page `kept`.
    fn extreme(&mut self, kept: u64, page: u64) -> u64 {
        let near = [
            0,
            kept,
            1 << 31,
            1 << 32,
            1 << 38,
            1 << 39,
            1 << 47,
            1 << 48,
            1 << 63,
            u64::MAX,
        ];
        let base = near[self.next(near.len() as u64) as usize];
        let alias = match self.next(4) {
            // The same low bits as a page that is mapped.
            0 => kept,
            _ => 0,
        };
        let step = [0, 1, 8, page, 2 * page, 3 * page - 1, 511 * page][self.next(7) as usize];
        match self.next(2) {
            0 => (base | alias).wrapping_add(step),
            _ => (base | alias).wrapping_sub(step),
        }
    }
}

/// What a call answered, which does not matter here.
fn answered<T>(_: T) {}

/// Calls number `n` of all with such arguments. What comes of it does not matter, but that it
/// comes.
#[expect(clippy::too_many_lines, reason = "a line for each call")]
fn call<P: Paging>(
    mm: &Mm<Host<P, true>>,
    thread: &Thread<'_, Host<P, true>>,
    file: &FileHandle<'_, Host<P, true>>,
    n: u64,
    [a, b, c]: [u64; 3],
    small: u64,
) {
    let at = VirtAddr(a);
    let access = [Access::Read, Access::Write][small as usize % 2];
    let prot = [Prot::NONE, Prot::READ, Prot::READ_WRITE][small as usize % 3];
    let place = [
        Place::Any,
        Place::Hint(VirtAddr(c)),
        Place::FixedNoReplace(VirtAddr(c)),
    ][small as usize % 3];
    let request = MapRequest {
        growth: [Growth::Fixed, Growth::Down][small as usize % 2],
        reserve: Reserve::NoReserve,
        populate: Populate::OnTouch,
        ..MapRequest::new(place, b, prot)
    };
    match n {
        0 => answered(thread.load(at)),
        1 => answered(thread.fault(at, access)),
        2 => answered(thread.mmap(&request)),
        3 => answered(thread.mmap_file(&request, file, a, Sharing::Private)),
        4 => answered(thread.mmap_file(&request, file, a, Sharing::Shared)),
        5 => answered(mm.mmap_huge(&request, Sharing::Private)),
        6 => answered(mm.mprotect(VirtAddr(c), 0, prot)),
        7 => answered(thread.madvise(at, b, Advice::WillNeed)),
        8 => answered(thread.madvise(at, b, Advice::Cold)),
        9 => {
            let how = [Remap::InPlace, Remap::MayMove][small as usize % 2];
            let request = RemapRequest {
                old: at,
                old_len: b,
                new_len: c,
                how,
            };
            // Of what is not the kept page: that may be moved where it is mapped.
            if a > KEPT_PAGES.end || a.saturating_add(b) < KEPT_PAGES.start {
                answered(thread.mremap(&request));
            }
        }
        10 => answered(mm.mincore(at, b.min(1 << 20), &mut [0; 256])),
        11 => answered(mm.msync(
            at,
            b,
            Msync {
                wait: true,
                begin: false,
                invalidate: false,
            },
        )),
        12 => answered(thread.mlock2(at, b, LockWhen::OnFault)),
        13 => answered(thread.mm().munlock(at, b)),
        14 => answered(thread.mlockall(LockAll::from_bits(5))),
        15 => thread.mm().munlockall(),
        16 => answered(mm.mbind(
            at,
            b,
            Policy::new(PolicyMode::Bind, NodeMask::of(c as u32)),
            Misplaced::Stay,
        )),
        17 => answered(mm.get_mempolicy_at(at)),
        18 => answered(mm.move_pages([(at, c as u32)], Which::Own, |_| ())),
        19 => mm.page_nodes([at], |_| ()),
        20 => answered(mm.remote_read(at, &mut [0; 64], Force::Yes)),
        21 => answered(mm.pin(at, Access::Read).map(|pin| pin.load(b))),
        22 => answered(thread.pin_fast(at, Access::Read)),
        23 => answered(thread.node_at(at)),
        24 => mm.pagemap(at, &mut [Mapped::Nothing; 8]),
        25 => answered(mm.brk(Some(at))),
        26 => answered(mm.set_start_brk(at)),
        27 => mm.set_limit_stack(b),
        28 => answered(file.truncate(a % (1 << 40))),
        29 => answered(file.punch_hole(a, b)),
        30 => answered(file.read_word(a)),
        31 => answered(file.write_word(a, b)),
        32 => answered(mm.shmdt(at)),
        33 => answered(mm.age(VirtRange::new(VirtAddr(a.min(b)), VirtAddr(a.max(b))))),
        34 => answered(mm.mapping_at(at)),
        _ => {
            let Ok(uffd) = mm.userfaultfd() else { return };
            answered(uffd.register(at, b, UffdMode::Missing));
            answered(uffd.copy(at, &[0; 64], WriteProtected::No, Wake::Yes));
            answered(uffd.zeropage(at, b, Wake::Yes));
            answered(uffd.writeprotect(at, b, WriteProtected::No, Wake::Yes));
            answered(uffd.wake(at, b));
            answered(uffd.unregister(at, b));
        }
    }
}

/// How many calls there are above.
const KINDS: u64 = 36;

/// Where the page lies that nothing may touch.
const KEPT_PAGES: core::ops::Range<u64> = 0x20_0000..0x20_0000 + (1 << 16);

fn answers<P: Paging>(config: Config, seed: u64) {
    let options = HostOptions {
        cpus: 1,
        ram_bytes: 64 << 20,
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).expect("memory");
    let sys = System::<Host<P, true>>::boot(machine, config).expect("boots");
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let kept = VirtAddr(KEPT_PAGES.start);
    let place = Place::FixedNoReplace(kept);
    let mapped = mm.mmap(place, P::page(), Prot::READ_WRITE);
    assert_eq!(mapped, Ok(kept));
    let file = sys.new_file(8 * P::page()).expect("memory");
    let thread = mm.thread();
    assert_eq!(thread.store(kept, KEPT), Ok(()));
    let mut draw = Draw(seed);
    for n in 0..CALLS {
        let mut some = || draw.extreme(kept.0, P::page());
        let arguments = [some(), some(), some()];
        call(&mm, &thread, &file, n % KINDS, arguments, n / KINDS);
        let found = thread.load(kept);
        assert_eq!(found, Ok(KEPT), "call {} of {arguments:x?}", n % KINDS);
    }
    drop(thread);
    sys.check_ledger(&[&mm]).expect("adds up");
    drop(mm);
    drop(file);
    sys.check_ledger(&[]).expect("nothing is left");
}

#[test]
fn every_call_answers_whatever_it_is_given() {
    let of = |name| era(name).expect("an era").config;
    answers::<X86_64>(of("linux-4.13"), 1);
    answers::<X86_64>(of("spf-2017"), 2);
    answers::<RiscvSv39>(of("linux-6.15"), 3);
    answers::<I386Pae>(of("linux-6.15"), 4);
}

/// The walk and the buffer of translations look at low bits: what lies above them must not be
/// dropped.
#[test]
fn an_address_above_user_space_reaches_no_page() {
    let options = HostOptions {
        cpus: 1,
        ram_bytes: 8 << 20,
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).expect("memory");
    let config = era("linux-6.15").expect("an era").config;
    let sys = System::<Host<X86_64, true>>::boot(machine, config).expect("boots");
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let low = VirtAddr(KEPT_PAGES.start);
    let mapped = mm.mmap(Place::FixedNoReplace(low), 4096, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(low));
    let thread = mm.thread();
    assert_eq!(thread.store(low, KEPT), Ok(()));
    for bit in 47..64 {
        let high = VirtAddr(1 << bit | low.0);
        assert_eq!(thread.load(high), Err(Signal::MapErr), "bit {bit}");
        assert_eq!(thread.store(high, 1), Err(Signal::MapErr), "bit {bit}");
        assert!(thread.pin_fast(high, Access::Read).is_none(), "bit {bit}");
        assert!(mm.pin(high, Access::Read).is_err(), "bit {bit}");
    }
    assert_eq!(thread.load(low), Ok(KEPT));
    assert_eq!(thread.load(VirtAddr(low.0 + 4)), Err(Signal::Misaligned));
    assert_eq!(
        thread.store(VirtAddr(low.0 + 1), 0),
        Err(Signal::Misaligned)
    );
}

//! Every page-table format: its entries against the manual, its tables against the addresses they
//! are to cover, and its exchanges on real atomics. A new format is a row of `each_format` and a
//! page of `manual.rs`.

mod execute_only;
mod manual;

use manual::Manual;
use minflt_addr::{Pfn, VirtAddr};
use minflt_host::Host;
use minflt_pgtable::{
    Access, AccessBits, EntryRef, Exchange, Exec, Grant, NonPresent, Paging, PtLock, Pte, Table,
    each_format, entries_of, format, index_of, span_of, span_shift, table_bytes, table_order,
};
use minflt_sync::{SpinLock, Word};
use minflt_tests::world::machine;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::Config;

use format::{
    Aarch64K4, Aarch64K16, Aarch64K64, Altix16K, I386, I386Pae, PowerRadix, RiscvSv39, RiscvSv48,
    S390x, X86_64, X86_64La57,
};

/// Calls a generic function for every format.
macro_rules! on_each {
    ($check:ident $arguments:tt) => {
        each_format!(on_each, $check $arguments)
    };
    ($check:ident $arguments:tt, $($format:ident),+) => {
        $($check::<$format> $arguments;)+
    };
}

/// Something done to an entry.
#[derive(Clone, Copy, Debug)]
enum Op {
    Grant(Grant),
    Exec(Exec),
    Young,
    Old,
    Dirty,
    /// By the hardware's walker, where that writes entries.
    Used(Access),
}

fn grant() -> impl Strategy<Value = Grant> {
    prop_oneof![Just(Grant::Nothing), Just(Grant::Read), Just(Grant::Write)]
}

fn exec() -> impl Strategy<Value = Exec> {
    prop_oneof![Just(Exec::No), Just(Exec::Yes), Just(Exec::Only)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        grant().prop_map(Op::Grant),
        exec().prop_map(Op::Exec),
        Just(Op::Young),
        Just(Op::Old),
        Just(Op::Dirty),
        Just(Op::Used(Access::Read)),
        Just(Op::Used(Access::Write)),
        Just(Op::Used(Access::Execute)),
    ]
}

/// What an entry is to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Meaning {
    pfn: Pfn,
    grant: Grant,
    young: bool,
    dirty: bool,
    zero_page: bool,
    exec: Exec,
}

/// The last frame number that fits.
fn last_pfn<P: Manual>() -> u64 {
    P::bits().pfn_mask >> P::bits().pfn_shift
}

fn in_memory<P: Manual>(pte: Pte<P>) -> Vec<u8> {
    let word = pte.word().wide();
    word.to_ne_bytes()[..size_of::<P::Word>()].to_vec()
}

fn says<P: Manual>(pte: Pte<P>, meaning: Meaning) {
    let id = P::ID;
    assert_eq!(pte.pfn(), meaning.pfn, "{id}");
    assert_eq!(pte.grant(), meaning.grant, "{id} {pte:?}");
    assert_eq!(pte.is_young(), meaning.young, "{id} {pte:?}");
    assert_eq!(pte.is_dirty(), meaning.dirty, "{id} {pte:?}");
    assert_eq!(pte.is_zero_page(), meaning.zero_page, "{id}");
    assert_eq!(pte.is_present(), meaning.grant != Grant::Nothing, "{id}");
    assert!(pte.is_mapped() && !pte.is_none(), "{id}");
    assert_eq!(Pte::from_word(pte.word()), pte, "{id}: through memory");
    let width = 8 * size_of::<P::Word>() as u32;
    assert_eq!(
        pte.raw().checked_shr(width).unwrap_or(0),
        0,
        "{id}: outside the word"
    );
    let seen = P::leaf(P::entry(&in_memory(pte)));
    let exec = said_by::<P>(meaning.exec);
    let open = meaning.grant >= Grant::Read && meaning.young;
    let load = open && exec != Exec::Only;
    assert_eq!(seen.load, load, "{id} {pte:?} {seen:?}");
    let store = load && meaning.grant == Grant::Write && meaning.dirty;
    assert_eq!(seen.store, store, "{id} {pte:?} {seen:?}");
    assert_eq!(pte.exec(), exec, "{id} {pte:?}");
    assert_eq!(pte.is_exec(), exec != Exec::No, "{id} {pte:?}");
    let fetch = open && exec != Exec::No;
    assert_eq!(seen.fetch, fetch, "{id} {pte:?} {seen:?}");
    assert_eq!(seen.frame, meaning.pfn.0 << P::shift(), "{id}");
}

/// What an entry says that was told so, as the manual has it.
fn said_by<P: Manual>(exec: Exec) -> Exec {
    match exec {
        _ if P::bits().of_exec() == 0 => Exec::Yes,
        Exec::Only if !P::EXECUTE_ONLY => Exec::Yes,
        exec => exec,
    }
}

/// The same for an entry that grants so much: one that grants stores is never execute-only.
const fn beside(exec: Exec, grant: Grant) -> Exec {
    match (exec, grant) {
        (Exec::Only, Grant::Write) => Exec::Yes,
        _ => exec,
    }
}

fn means_what_it_was_told<P: Manual>(pfn: u64, grant: Grant, zero_page: bool, ops: &[Op]) {
    let mut meaning = Meaning {
        pfn: Pfn(pfn & last_pfn::<P>()),
        grant,
        young: true,
        dirty: false,
        zero_page,
        exec: Exec::No,
    };
    let mut pte = Pte::<P>::page(meaning.pfn, grant);
    if zero_page {
        pte = pte.zero_page();
    }
    says(pte, meaning);
    let hardware = P::caps().access_bits.on_cpu(|_| true) == AccessBits::Hardware;
    for op in ops {
        match op {
            Op::Grant(grant) => {
                meaning.exec = beside(meaning.exec, *grant);
                pte = pte.with_exec(meaning.exec).with_grant(*grant);
                meaning.grant = *grant;
                assert_eq!(pte.with_grant(*grant), pte, "{}", P::ID);
            }
            Op::Exec(exec) => {
                meaning.exec = beside(*exec, meaning.grant);
                pte = pte.with_exec(meaning.exec);
            }
            Op::Young => (pte, meaning.young) = (pte.young(), true),
            Op::Old => (pte, meaning.young) = (pte.old(), false),
            Op::Dirty => (pte, meaning.dirty) = (pte.dirty(), true),
            Op::Used(access) if hardware && meaning.grant >= access.needs() => {
                pte = pte.used_by_hardware(*access);
                assert_eq!(pte.used_by_hardware(*access), pte, "{}", P::ID);
                meaning.young = true;
                meaning.dirty |= *access == Access::Write;
            }
            Op::Used(_) => {}
        }
        says(pte, meaning);
    }
}

/// The hardware finds nothing in `pte`, and nobody takes it for empty or mapped.
fn is_away<P: Manual>(pte: Pte<P>, says: NonPresent) {
    let id = P::ID;
    let seen = P::leaf(P::entry(&in_memory(pte)));
    let nothing = !seen.load && !seen.store && !seen.fetch;
    assert!(nothing, "{id} {pte:?} {seen:?}");
    assert!(!pte.is_none() && !pte.is_mapped(), "{id} {pte:?}");
    assert_eq!(pte.nonpresent(), Some(says), "{id} {pte:?}");
    assert_eq!(Pte::from_word(pte.word()), pte, "{id}: through memory");
}

fn comes_back_as_it_went<P: Manual>(
    numbers: [u64; 2],
    (grant, exec): (Grant, Exec),
    bits: [bool; 3],
    ops: &[Op],
) {
    let [from, to] = numbers.map(|number| Pfn(number & last_pfn::<P>()));
    let mut old = Pte::<P>::page(from, grant);
    let [young, dirty, marked] = bits;
    let grants = |op: &Op| matches!(op, Op::Grant(Grant::Write));
    let most = ops
        .iter()
        .find(|op| grants(op))
        .map_or(grant, |_| Grant::Write);
    let exec = beside(exec, most);
    old = if young { old } else { old.old() };
    old = if dirty { old.dirty() } else { old };
    old = if marked { old.uffd_wp() } else { old };
    old = old.with_exec(exec);
    let mut away = old.migration();
    is_away(away, NonPresent::Migration(from));
    assert_eq!(away.grant_later(), grant, "{}", P::ID);
    let mut wanted = old;
    for op in ops {
        if let Op::Grant(grant) = op {
            away = away.granting_later(*grant);
            wanted = wanted.with_grant(*grant);
            is_away(away, NonPresent::Migration(from));
        }
    }
    let back = away.migrated(to);
    let marked = marked && P::bits().uffd_wp != 0;
    assert_eq!(back.is_uffd_wp(), marked, "{}", P::ID);
    let (young, dirty, grant) = (wanted.is_young(), wanted.is_dirty(), wanted.grant());
    says(
        back,
        Meaning {
            pfn: to,
            grant,
            young,
            dirty,
            zero_page: false,
            exec,
        },
    );
    let slot = numbers[1] % Pte::<P>::slots();
    let swapped = old.swapped(slot);
    is_away(swapped, NonPresent::Swap(slot));
    assert_eq!(swapped.is_uffd_wp(), marked, "{}", P::ID);
}

fn tables_are_found<P: Manual>(pfn: u64) {
    let pfn = Pfn(pfn & last_pfn::<P>());
    for level in 1..P::levels() {
        let pte = Pte::<P>::table(pfn, level);
        assert_eq!(pte.pfn(), pfn, "{}", P::ID);
        assert_eq!(Pte::from_word(pte.word()), pte, "{}", P::ID);
        let found = P::table(P::entry(&in_memory(pte)), level);
        // Only software walks ia64's upper tables, and frame 0 is never a table.
        assert_eq!(found, Some(pfn.0 << P::shift()), "{} level {level}", P::ID);
        assert!(!pte.is_none_at(level), "{}", P::ID);
    }
}

fn addresses_are_covered<P: Manual>(addr: u64) {
    let all = span_shift::<P>(P::levels());
    assert_eq!(all, P::ADDRESS_BITS, "{}", P::ID);
    let addr = VirtAddr(addr & u64::MAX >> (64 - all));
    let mut sum = addr.0 & (P::page() - 1);
    for level in 0..P::levels() {
        let index = index_of::<P>(addr, level);
        assert!((index as u64) < entries_of::<P>(level), "{}", P::ID);
        sum += (index as u64) << span_shift::<P>(level);
        let span = span_of::<P>(addr, level);
        assert!(span.contains(addr), "{}", P::ID);
        assert_eq!(span.len(), 1 << span_shift::<P>(level), "{}", P::ID);
        assert_eq!(index_of::<P>(span.start(), level), index, "{}", P::ID);
    }
    assert_eq!(
        sum,
        addr.0,
        "{}: each bit of the address is looked up once",
        P::ID
    );
}

proptest! {
    #![proptest_config(Config { cases: 256, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_leaf_means_to_the_hardware_what_it_was_told(
        pfn in any::<u64>(),
        grant in grant(),
        zero_page in any::<bool>(),
        ops in proptest::collection::vec(op(), 0..12),
    ) {
        on_each!(means_what_it_was_told(pfn, grant, zero_page, &ops));
    }

    #[test]
    fn a_page_that_is_away_is_nothing_to_the_hardware_and_comes_back_as_it_went(
        numbers in any::<[u64; 2]>(),
        grant in grant(),
        exec in exec(),
        bits in any::<[bool; 3]>(),
        ops in proptest::collection::vec(op(), 0..4),
    ) {
        on_each!(comes_back_as_it_went(numbers, (grant, exec), bits, &ops));
    }

    #[test]
    fn an_entry_above_the_leaves_leads_the_hardware_to_its_table(pfn in 1..u64::MAX) {
        on_each!(tables_are_found(pfn));
    }

    #[test]
    fn the_levels_cover_the_addresses_once(addr in any::<u64>()) {
        on_each!(addresses_are_covered(addr));
    }

    #[test]
    fn half_equal_entries_are_never_exchanged(
        old in any::<u64>(),
        new in any::<u64>(),
        flip in any::<u64>(),
    ) {
        on_each!(half_equal(old, new, flip));
    }
}

/// Calls `body` with an entry of a machine of its own.
fn with_entry<P: Manual>(body: impl FnOnce(EntryRef<'_, Host<P, true>>)) {
    let machine = machine(1, 1 << 20);
    let _cpu = machine.enter(0);
    // SAFETY: 1: the frame is nobody else's, and zeros are entries.
    let table = unsafe { Table::<Host<P, true>>::at(&machine, Pfn(4), 0) };
    body(table.entry(3));
}

fn half_equal<P: Manual>(old: u64, new: u64, flip: u64) {
    let width = 8 * size_of::<P::Word>() as u32;
    let half = u64::MAX >> (64 - width / 2);
    let pte = |wide: u64| Pte::<P>::from_word(Word::narrow(wide));
    with_entry::<P>(|entry| {
        let lock: PtLock<Host<P, true>> = SpinLock::new(());
        let lock = &lock;
        let ways = [Exchange::Native, Exchange::Emulated(lock), Exchange::Held];
        for mask in [half, half << (width / 2)] {
            if flip & mask == 0 {
                continue;
            }
            let (old, found) = (pte(old), pte(old ^ flip & mask));
            let new = pte(new);
            for how in ways {
                entry.store(found);
                assert_eq!(entry.cas(how, old, new), Err(found), "{} {how:?}", P::ID);
                assert_eq!(entry.load(), found, "{}", P::ID);
                assert_eq!(entry.cas(how, found, new), Ok(()), "{}", P::ID);
                assert_eq!(entry.swap(how, old), new, "{}", P::ID);
                assert_eq!(entry.update(how, |_| Some(found)), Ok(old), "{}", P::ID);
                assert_eq!(entry.update(how, |_| None), Err(found), "{}", P::ID);
            }
            // The control takes one for the other, if they differ in the half it does not see.
            entry.store(found);
            let fooled = entry.cas(Exchange::HalfWidth, old, new).is_ok();
            assert_eq!(fooled, mask != half, "{}", P::ID);
            assert_eq!(entry.load(), if fooled { new } else { found }, "{}", P::ID);
            assert_eq!(
                entry.swap(Exchange::HalfWidth, old),
                entry_was(fooled, new, found)
            );
            assert_eq!(entry.load(), old, "{}", P::ID);
        }
    });
}

fn entry_was<P: Manual>(fooled: bool, new: Pte<P>, found: Pte<P>) -> Pte<P> {
    if fooled { new } else { found }
}

fn huge_pages_are_no_tables<P: Manual>() {
    let top = P::about().huge.map_or(0, |huge| huge.top);
    (1..=top).for_each(huge_pages_of_level::<P>);
}

fn huge_pages_of_level<P: Manual>(level: u32) {
    let order = span_shift::<P>(level) - P::shift();
    let pfn = Pfn(5 << order & last_pfn::<P>());
    assert!(Pte::<P>::table(pfn, level).is_table_at(level), "{}", P::ID);
    assert!(!Pte::<P>::none_at(level).is_table_at(level), "{}", P::ID);
    for (grant, exec) in [
        (Grant::Nothing, Exec::No),
        (Grant::Read, Exec::No),
        (Grant::Read, Exec::Only),
        (Grant::Write, Exec::Yes),
    ] {
        let page = Pte::<P>::page(pfn, grant).dirty().with_exec(exec);
        let huge = page.huge();
        assert_eq!((huge.pfn(), huge.grant()), (pfn, grant), "{}", P::ID);
        let lowered = huge.with_grant(Grant::Nothing).with_grant(grant);
        for pte in [huge, lowered, huge.old(), huge.clean()] {
            assert!(
                !pte.is_table_at(level) && !pte.is_none_at(level),
                "{} {pte:?}",
                P::ID
            );
            assert_eq!(pte.grant(), grant, "{}", P::ID);
            let moving = pte.migration();
            assert!(
                !moving.is_table_at(level) && !moving.is_mapped(),
                "{}",
                P::ID
            );
            assert_eq!(moving.moving(), Some(pfn), "{}", P::ID);
            assert_eq!(moving.migrated(pfn).huge(), pte, "{}", P::ID);
        }
        let (seen, leaf) = (
            <P as Manual>::huge(P::entry(&in_memory(huge))),
            P::leaf(P::entry(&in_memory(page))),
        );
        let expected = (grant > Grant::Nothing).then_some(leaf);
        assert_eq!(seen, expected, "{} {grant:?}", P::ID);
        assert_eq!(
            P::table(P::entry(&in_memory(huge)), level),
            None,
            "{}",
            P::ID
        );
    }
}

#[test]
fn an_entry_that_maps_a_huge_page_is_taken_for_no_table() {
    on_each!(huge_pages_are_no_tables());
}

fn none_is_none<P: Manual>() {
    for level in 0..P::levels() {
        let none = Pte::<P>::none_at(level);
        assert!(none.is_none_at(level), "{}", P::ID);
        assert_eq!(Pte::from_word(none.word()), none, "{}", P::ID);
        let entry = P::entry(&in_memory(none));
        if level == 0 {
            assert_eq!(none, Pte::none(), "{}", P::ID);
            assert!(none.is_none() && !none.is_mapped() && !none.is_present());
            let seen = P::leaf(entry);
            let nothing = !seen.load && !seen.store && !seen.fetch;
            assert!(nothing, "{}: {seen:?}", P::ID);
        } else {
            assert_eq!(P::table(entry, level), None, "{} level {level}", P::ID);
        }
    }
}

#[test]
fn an_empty_entry_lets_nothing_through_at_any_level() {
    on_each!(none_is_none());
}

fn bits_are_apart<P: Manual>() {
    let b = P::bits();
    let all = [
        b.present,
        b.load,
        b.write,
        b.accessed,
        b.dirty,
        b.no_access,
        b.zero_page,
        b.uffd_wp,
        b.invalid,
        b.read_only,
        b.of_exec(),
        b.pfn_mask,
        P::tree()[0].fixed,
    ];
    let together = all.iter().fold(0u64, |sum, bits| {
        assert_eq!(sum & bits, 0, "{}", P::ID);
        sum | bits
    });
    let width = 8 * size_of::<P::Word>() as u32;
    assert_eq!(together.checked_shr(width).unwrap_or(0), 0, "{}", P::ID);
    for bit in [b.no_access, b.zero_page, b.accessed, b.dirty, b.write] {
        assert_eq!(bit.count_ones(), 1, "{}", P::ID);
    }
    assert!(b.uffd_wp.count_ones() <= 1, "{}", P::ID);
    assert!(b.load.count_ones() <= 1, "{}", P::ID);
    assert_eq!(
        b.execute_only(),
        P::EXECUTE_ONLY,
        "{}: as its manual",
        P::ID
    );
    assert_eq!(b.pfn_mask.trailing_zeros(), b.pfn_shift, "{}", P::ID);
    for level in &P::tree()[1..] {
        assert_eq!(level.fixed & b.pfn_mask, 0, "{}", P::ID);
    }
}

#[test]
fn the_bits_of_a_format_stand_apart_and_within_its_word() {
    on_each!(bits_are_apart());
}

fn tables_have_the_manuals_size<P: Manual>() {
    assert_eq!(P::TABLES.len(), P::levels() as usize, "{}", P::ID);
    for (level, bytes) in (0..).zip(P::TABLES) {
        assert_eq!(table_bytes::<P>(level), *bytes, "{} level {level}", P::ID);
        let frames = 1u64 << table_order::<P>(level);
        assert!(frames * P::page() >= *bytes, "{}", P::ID);
        assert!(frames == 1 || frames * P::page() < 2 * bytes, "{}", P::ID);
    }
    assert!(P::user_end() <= 1 << P::ADDRESS_BITS, "{}", P::ID);
    assert_eq!(P::user_end() % P::page(), 0, "{}", P::ID);
}

#[test]
fn tables_have_the_size_that_the_manual_says() {
    on_each!(tables_have_the_manuals_size());
    assert_eq!(table_order::<S390x>(2), 2);
    assert_eq!(table_order::<S390x>(0), 0);
}

#[test]
fn the_list_of_formats_has_each_once() {
    let mut ids: Vec<_> = format::FORMATS.iter().map(|about| about.id).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    let mut counted = 0;
    macro_rules! count {
        ($($format:ident),+) => { $(
            assert_eq!(format::FORMATS[counted].id, <$format as minflt_pgtable::Facts>::ID);
            counted += 1;
        )+ };
    }
    each_format!(count);
    assert_eq!(counted, all);
}

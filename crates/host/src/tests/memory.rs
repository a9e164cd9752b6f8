//! The memory's verbs.

use super::{M, machine, words_of};
use crate::{Host, HostBare};
use minflt_addr::Pfn;
use minflt_pgtable::{Altix16K, Facts, Mmu, Paging, X86_64};
use minflt_sync::Instance;

fn verbs<A: Mmu<Instance = crate::HostInstance>>() {
    let at = machine(1);
    let _cpu = at.enter(0);
    let last = <A as Mmu>::Paging::page() - 8;
    assert_eq!(A::user_load(&at, Pfn(1), 0), 0);
    A::user_store(&at, Pfn(1), 0, 11);
    A::user_store(&at, Pfn(1), last, 12);
    A::user_store(&at, Pfn(2), 0, 13);
    A::copy(&at, Pfn(3), Pfn(1));
    assert_eq!(
        (
            A::user_load(&at, Pfn(3), 0),
            A::user_load(&at, Pfn(3), last)
        ),
        (11, 12)
    );
    A::clear(&at, Pfn(1));
    assert_eq!(
        (
            A::user_load(&at, Pfn(1), 0),
            A::user_load(&at, Pfn(1), last)
        ),
        (0, 0)
    );
    assert_eq!(A::user_load(&at, Pfn(2), 0), 13);
    let distance = A::frame_ptr(&at, Pfn(3)) as usize - A::frame_ptr(&at, Pfn(1)) as usize;
    assert_eq!(distance as u64, 2 * <A as Mmu>::Paging::page());
}

#[test]
fn each_verb_touches_the_frame_named_and_no_other() {
    verbs::<Host<X86_64, true>>();
    verbs::<Host<X86_64, false>>();
    verbs::<Host<Altix16K, true>>();
    verbs::<HostBare<X86_64>>();
}

#[test]
fn there_is_no_frame_past_the_end() {
    let at = machine(1);
    let frames = at.ram().bytes as u64 >> X86_64::SHIFT;
    assert!(!M::frame_ptr(&at, Pfn(frames - 1)).is_null());
    for beyond in [frames, 1 << 52, u64::MAX] {
        assert!(words_of(|| M::clear(&at, Pfn(beyond))).contains("no such frame"));
    }
    assert!(words_of(|| M::user_store(&at, Pfn(0), 4096, 0)).contains("8 bytes of one page"));
}

#[test]
fn the_clock_runs_forward() {
    let at = machine(1);
    let (first, second) = (at.now_ns(), at.now_ns());
    assert!(first <= second);
}

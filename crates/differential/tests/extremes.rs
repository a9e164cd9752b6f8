//! 104,000 calls with extreme arguments; and what the worst of them once came to.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_addr::VirtAddr;
use minflt_differential::extremes::{Bench, Call, KEPT, KINDS, WORD};
use minflt_differential::random::Random;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{Config, Place, Prot, Signal, System, era};
use minflt_pgtable::{Access, I386Pae, Paging, RiscvSv39, X86_64};

/// Calls of each configuration; of all together more than 100,000.
const CALLS: u64 = 26_000;

fn answers<P: Paging>(config: Config, seed: u64) {
    let bench = Bench::<P>::start(config, 64 << 20).expect("memory");
    let mut random = Random::new(seed);
    let call = |n| Call::draw(n % KINDS, n / KINDS, P::page(), |most| random.below(most));
    assert_eq!(bench.run((0..CALLS).map(call)), Ok(()));
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
    let low = VirtAddr(KEPT.start);
    let mapped = mm.mmap(Place::FixedNoReplace(low), 4096, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(low));
    let thread = mm.thread();
    assert_eq!(thread.store(low, WORD), Ok(()));
    for bit in 47..64 {
        let high = VirtAddr(1 << bit | low.0);
        assert_eq!(thread.load(high), Err(Signal::MapErr), "bit {bit}");
        assert_eq!(thread.store(high, 1), Err(Signal::MapErr), "bit {bit}");
        assert!(thread.pin_fast(high, Access::Read).is_none(), "bit {bit}");
        assert!(mm.pin(high, Access::Read).is_err(), "bit {bit}");
    }
    assert_eq!(thread.load(low), Ok(WORD));
    assert_eq!(thread.load(VirtAddr(low.0 + 4)), Err(Signal::Misaligned));
    assert_eq!(
        thread.store(VirtAddr(low.0 + 1), 0),
        Err(Signal::Misaligned)
    );
}

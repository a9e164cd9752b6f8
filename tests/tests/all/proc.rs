//! The text of an address space: beside its own process's in Linux's `/proc`, and beside others who
//! want the address space meanwhile.

#![expect(
    clippy::disallowed_types,
    reason = "when a test ends is none of the machine's"
)]

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use minflt_addr::{VirtAddr, VirtRange};
use minflt_mm::{
    ERAS, FileHandle, Growth, MapRequest, Mapped, Mm, Overcommit, Place, Prot, Reserve, Thread,
    eras_without_migration,
};
use minflt_tests::world::{Machine, PAGE, boot, in_each_era, map, page};
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::sync::mpsc::channel;
use std::thread::scope;

fn text(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).expect("a string takes all");
    text
}

#[test]
fn maps_says_what_is_mapped() {
    in_each_era(1, 16 << 20, |_, _, mm| {
        map(mm, 0, 2, Prot::READ_WRITE);
        map(mm, 4, 1, Prot::NONE);
        map(mm, 8, 1, Prot::READ.with(Prot::EXEC));
        mm.set_start_brk(page(16)).expect("unused");
        assert_eq!(mm.brk(Some(page(18))), page(18));
        let expected = "\
40000000-40002000 rw-p 00000000 00:00 0 
40004000-40005000 ---p 00000000 00:00 0 
40008000-40009000 r-xp 00000000 00:00 0 
40010000-40012000 rw-p 00000000 00:00 0                                  [heap]
";
        assert_eq!(text(|out| mm.maps(out)), expected);
    });
}

/// The host's own text has the same columns.
#[test]
fn a_line_looks_as_the_hosts() {
    let Ok(host) = read_to_string("/proc/self/maps") else {
        println!("skipped: no /proc");
        return;
    };
    let heap = host.lines().find(|line| line.ends_with("[heap]"));
    let Some(heap) = heap else {
        println!("skipped: no heap");
        return;
    };
    let sys = boot(ERAS[0].config, 1, 16 << 20);
    let _cpu = sys.machine().enter(0);
    // The host's heap may be larger than this machine.
    sys.set_overcommit(Overcommit::Always);
    let mm = sys.new_mm().expect("memory");
    let range = heap
        .split(' ')
        .next()
        .and_then(|range| range.split_once('-'));
    let (from, to) = range.expect("two addresses");
    let number = |text| VirtAddr(u64::from_str_radix(text, 16).expect("hexadecimal"));
    mm.set_start_brk(number(from)).expect("unused");
    assert_eq!(mm.brk(Some(number(to))), number(to));
    assert_eq!(text(|out| mm.maps(out)), format!("{heap}\n"));
    drop(mm);
}

/// Fields of one mapping, or of `status`, in kB.
fn fields(text: &str) -> BTreeMap<&str, u64> {
    let field = |line| {
        let (name, value): (&str, &str) = str::split_once(line, ':')?;
        let kib = value.trim().strip_suffix(" kB")?;
        Some((name, kib.trim().parse().ok()?))
    };
    text.lines().filter_map(field).collect()
}

#[test]
fn smaps_counts_pages_by_what_they_are() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        map(mm, 510, 8, Prot::READ_WRITE);
        let thread = mm.thread();
        for n in 510..515 {
            thread.store(page(n), n).expect("mapped");
        }
        thread.load(page(516)).expect("the zero page");
        let before = text(|out| mm.smaps(out));
        let found = fields(&before);
        for (name, kib) in [
            ("Size", 32),
            ("KernelPageSize", 4),
            ("Rss", 20),
            ("Pss", 20),
            ("Private_Dirty", 20),
            ("Private_Clean", 0),
            ("Shared_Dirty", 0),
            ("Referenced", 20),
            ("Anonymous", 20),
            ("Locked", 0),
        ] {
            assert_eq!(found.get(name), Some(&kib), "{name} in {before}");
        }
        assert!(
            before.ends_with("VmFlags: rd wr mr mw me ac \n"),
            "{before}"
        );
        let child = sys.fork(mm).expect("memory");
        thread.store(page(510), 1).expect("copied");
        let after = text(|out| mm.smaps(out));
        let found = fields(&after);
        for (name, kib) in [
            ("Rss", 20),
            ("Pss", 12),
            ("Private_Dirty", 4),
            ("Shared_Dirty", 16),
        ] {
            assert_eq!(found.get(name), Some(&kib), "{name} in {after}");
        }
        drop(child);
    });
}

/// Every field is one of the host's, in the host's order.
fn in_the_hosts_order(ours: &str, host: &str) {
    let name = |line: &str| line.split_once(':').map(|(name, _)| name.to_owned());
    let host: Vec<_> = host.lines().filter_map(name).collect();
    let mut at = 0;
    for field in ours.lines().filter_map(name) {
        let step = host[at..].iter().position(|name| *name == field);
        at += step.unwrap_or_else(|| panic!("{field} is not, or not here, in the host's")) + 1;
    }
}

#[test]
fn fields_are_the_hosts() {
    let (Ok(smaps), Ok(status)) = (
        read_to_string("/proc/self/smaps"),
        read_to_string("/proc/self/status"),
    ) else {
        println!("skipped: no /proc");
        return;
    };
    let second = smaps.match_indices("VmFlags").next().map(|(at, _)| at);
    let first = smaps.split_once('\n').map_or(0, |(line, _)| line.len() + 1);
    let host = &smaps[first..second.map_or(smaps.len(), |at| at + 9)];
    in_each_era(1, 16 << 20, |_, _, mm| {
        map(mm, 0, 1, Prot::READ);
        let ours = text(|out| mm.smaps(out));
        let (_, ours) = ours.split_once('\n').expect("lines");
        in_the_hosts_order(ours, host);
        // As wide as the host's, too.
        let width = |text: &str| text.lines().next().map(str::len);
        assert_eq!(width(ours), width(host), "{ours}{host}");
        in_the_hosts_order(&text(|out| mm.status(out)), &status);
    });
}

#[test]
fn status_says_how_large_it_is() {
    in_each_era(1, 16 << 20, |_, _, mm| {
        map(mm, 0, 4, Prot::READ_WRITE);
        map(mm, 8, 2, Prot::READ.with(Prot::EXEC));
        map(mm, 100, 10, Prot::READ);
        let stack = MapRequest {
            growth: Growth::Down,
            reserve: Reserve::NoReserve,
            ..MapRequest::new(Place::Fixed(page(600)), PAGE, Prot::READ_WRITE)
        };
        let thread = mm.thread();
        assert_eq!(thread.mmap(&stack), Ok(page(600)));
        thread.store(page(1), 1).expect("mapped");
        assert_eq!(mm.munmap(page(100), 10 * PAGE), Ok(()));
        drop(thread);
        let text = text(|out| mm.status(out));
        let found = fields(&text);
        for (name, kib) in [
            ("VmPeak", 17 * 4),
            ("VmSize", 7 * 4),
            ("VmLck", 0),
            ("VmRSS", 4),
            ("VmData", 16),
            ("VmStk", 4),
            ("VmLib", 8),
        ] {
            assert_eq!(found.get(name), Some(&kib), "{name} in {text}");
        }
        assert!(text.starts_with("VmPeak:\t      68 kB\n"), "{text}");
    });
}

/// Whoever reads the text maps and faults between two lines: with a lock held that would wait for
/// ever, and lockdep says so before.
struct Meddler<'m, 'mm> {
    thread: &'m Thread<'mm, Machine>,
    lines: u64,
}

impl Write for Meddler<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.ends_with('\n') {
            self.lines += 1;
            let (thread, place) = (self.thread, Place::Fixed(page(1000)));
            thread
                .mm()
                .mmap(place, PAGE, Prot::READ_WRITE)
                .expect("memory");
            thread.store(page(1000), 1).expect("mapped");
            thread.mm().munmap(page(1000), PAGE).expect("mapped");
        }
        Ok(())
    }
}

#[test]
fn nothing_is_held_while_text_is_written() {
    in_each_era(1, 16 << 20, |_, _, mm| {
        for n in 0..40 {
            map(mm, 2 * n, 1, Prot::READ_WRITE);
        }
        let thread = mm.thread();
        for n in [0, 39] {
            thread.store(page(2 * n), 1).expect("mapped");
        }
        let mut out = Meddler {
            thread: &thread,
            lines: 0,
        };
        mm.maps(&mut out).expect("it takes all");
        assert_eq!(out.lines, 40);
        mm.smaps(&mut out).expect("it takes all");
        mm.status(&mut out).expect("it takes all");
    });
}

/// What stays mapped shows once, whatever comes and goes around it.
#[test]
fn what_stays_shows_once() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 2, 16 << 20);
        let first = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        for n in 0..100 {
            map(&mm, 4 * n, 1, Prot::READ);
        }
        drop(first);
        scope(|scope| {
            let (sys, mm) = (&sys, &mm);
            let writer = scope.spawn(move || {
                let _cpu = sys.machine().enter(1);
                for round in 0..300 {
                    let n = 4 * (round * 7 % 100) + 2;
                    map(mm, n, 1, Prot::READ_WRITE);
                    mm.thread().store(page(n), 1).expect("mapped");
                    mm.munmap(page(n), PAGE).expect("mapped");
                }
            });
            let _cpu = sys.machine().enter(0);
            while !writer.is_finished() {
                let text = text(|out| mm.maps(out));
                let stay = text.lines().filter(|line| line.contains("r--p"));
                let stay: Vec<_> = stay.map(|line| &line[..8]).collect();
                let all: Vec<_> = (0..100).map(|n| format!("{:08x}", page(4 * n).0)).collect();
                assert_eq!(stay, all);
            }
        });
        let _cpu = sys.machine().enter(0);
        drop(mm);
    }
}

/// A CPU that does nothing but one call, over and over, answers who waits for it. Before these were
/// calls it never did, and a munmap that waited for readers waited for ever.
#[test]
fn a_cpu_busy_with_one_call_keeps_no_grace_period_waiting() {
    type Call = fn(&Mm<Machine>, &FileHandle<'_, Machine>);
    let calls: [(&str, Call); 8] = [
        ("maps", |mm, _| drop(text(|out| mm.maps(out)))),
        ("smaps", |mm, _| drop(text(|out| mm.smaps(out)))),
        ("status", |mm, _| drop(text(|out| mm.status(out)))),
        ("pagemap", |mm, _| {
            mm.pagemap(page(0), &mut [Mapped::Nothing; 4])
        }),
        ("age", |mm, _| {
            mm.age(VirtRange::new(page(0), page(4)));
        }),
        ("read", |_, file| assert_eq!(file.read_word(0), Ok(Some(0)))),
        ("truncate", |_, file| {
            assert_eq!(file.truncate(PAGE), Ok(()))
        }),
        ("sync", |_, file| assert_eq!(file.sync(), Ok(()))),
    ];
    for name in ["spf-2017", "linux-6.4", "linux-6.15"] {
        for (what, call) in calls {
            let sys = boot(minflt_mm::era(name).expect("an era").config, 2, 16 << 20);
            let cpu = sys.machine().enter(0);
            let (mm, other) = (sys.new_mm().expect("memory"), sys.new_mm().expect("memory"));
            let file = sys.new_file(PAGE).expect("memory");
            map(&other, 0, 4, Prot::READ);
            let drained = AtomicBool::new(false);
            let (begun, has_begun) = channel();
            let answered = scope(|scope| {
                let (sys, other, file, drained) = (&sys, &other, &file, &drained);
                let busy = scope.spawn(move || {
                    let _cpu = sys.machine().enter(1);
                    call(other, file);
                    begun.send(()).expect("somebody waits");
                    // Seconds: a call takes 50 ns, and the waiter may get no processor for 100 ms.
                    // A CPU that is left answers.
                    (0..1 << 26).any(|_| {
                        call(other, file);
                        drained.load(Ordering::Relaxed)
                    })
                });
                has_begun.recv().expect("it begins");
                for n in 0..4 {
                    map(&mm, n, 1, Prot::READ);
                    mm.munmap(page(n), PAGE).expect("mapped");
                }
                while sys.deferred() > 0 {
                    sys.drain_deferred();
                }
                drained.store(true, Ordering::Relaxed);
                cpu.away(|| busy.join().expect("no panic"))
            });
            assert!(
                answered,
                "{name}: {what} answered only when the CPU was left"
            );
            drop((mm, other, file));
            drop(cpu);
        }
    }
}

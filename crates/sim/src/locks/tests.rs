//! Whether the lock primitives come out as they were measured.

use super::{Contest, Lock, contest, curves, seat};
use crate::machine_file::{Arbitration, MachineFile};
use crate::model::Model;

/// Points that are known to be off by more than 30%, and by how much at most.
/// `docs/validation.md` says what is known of why.
const MISSES: &[(&str, u32, Lock, f64)] = &[
    ("ivb-ep40", 40, Lock::Clh, 1.45),
    ("ivb-ep40", 40, Lock::Mcs, 1.35),
];

fn ratio(file: &MachineFile, machine: &str, threads: u32, lock: Lock) -> f64 {
    let curves = curves().unwrap();
    let curves = curves.iter().find(|one| one.machine == machine).unwrap();
    let at = curves.threads.iter().position(|n| *n == threads).unwrap();
    let what = curves.contest(threads);
    contest(file, lock, what).unwrap() / curves.measured[lock.name()][at]
}

#[test]
fn textbook_locks_are_within_a_third_of_what_was_measured() {
    for (machine, points) in [("ivb-ep40", [10, 20, 40]), ("hsw-ex96", [12, 24, 48])] {
        let file = MachineFile::shipped(machine).unwrap();
        for threads in points {
            for lock in &Lock::ALL[..5] {
                let ratio = ratio(&file, machine, threads, *lock);
                let known =
                    |miss: &&(_, _, _, _)| (miss.0, miss.1, miss.2) == (machine, threads, *lock);
                let most = MISSES.iter().find(known).map_or(1.3, |miss| miss.3);
                assert!(
                    (0.7..=most).contains(&ratio),
                    "{machine}, {threads} threads, {}: {ratio:.2} of what was measured",
                    lock.name()
                );
            }
        }
    }
}

/// A control of the test above: it sees who gets a line next.
#[test]
fn served_in_the_order_of_asking_a_test_and_test_and_set_lock_collapses() {
    let mut file = MachineFile::shipped("hsw-ex96").unwrap();
    file.arbitration = Arbitration::Fifo;
    file.shape.near_first_permille.value = 0.0;
    let ratio = ratio(&file, "hsw-ex96", 48, Lock::Ttas);
    assert!(ratio < 0.7, "{ratio:.2} of what was measured");
}

/// Held out: nothing was fitted to these curves. How far off they are is printed in
/// `docs/validation.md`; here, that asking all sockets brings each lock nearer to them.
#[test]
fn asking_all_sockets_explains_a_part_of_what_eight_sockets_lose() {
    let file = MachineFile::shipped("wsm-ex8").unwrap();
    let mut directory = file.clone();
    directory.snoops = None;
    for lock in &Lock::ALL[..5] {
        let [with, without] = [&file, &directory].map(|file| ratio(file, "wsm-ex8", 80, *lock));
        let name = lock.name();
        assert!(without > 1.5, "{name}: {without:.2} without");
        assert!(with < 0.95 * without, "{name}: {with:.2} of {without:.2}");
        assert!(with > 1.0, "{name}: {with:.2}: slower than measured");
    }
}

#[test]
fn threads_fill_one_socket_after_the_other_and_then_second_threads() {
    let model = Model::new(&MachineFile::shipped("ivb-ep40").unwrap(), 40);
    let seats: Vec<u32> = [0, 1, 9, 10, 19, 20, 39].map(|me| seat(&model, me)).into();
    assert_eq!(seats, [0, 2, 18, 20, 38, 1, 39]);
}

#[test]
fn more_threads_than_cpus_are_refused() {
    let file = MachineFile::shipped("ivb-ep40").unwrap();
    let what = Contest {
        threads: 41,
        section_cycles: 1000,
        between_cycles: 40,
    };
    let refused = contest(&file, Lock::Tas, what).unwrap_err().to_string();
    assert_eq!(refused, "41 threads on a machine of 40 CPUs");
}

/// Held out as well: that both curves have the shape of the measured ones, one thread far above all
/// others, and that leaving by compare and exchange costs more than adding again.
#[test]
fn one_word_is_fast_for_one_thread_only() {
    let file = MachineFile::shipped("skx448").unwrap();
    let rate = |lock, threads| {
        let what = Contest {
            threads,
            section_cycles: 0,
            between_cycles: 0,
        };
        contest(&file, lock, what).unwrap()
    };
    for lock in [Lock::Add, Lock::Readers] {
        let [one, two, many] = [1, 2, 224].map(|threads| rate(lock, threads));
        assert!(one > 2.0 * two, "{}: {one:.0}, {two:.0}", lock.name());
        assert!(many < two, "{}: {two:.0}, {many:.0}", lock.name());
    }
    assert!(rate(Lock::Readers, 28) < 0.5 * rate(Lock::Add, 28));
}

#[test]
fn a_curve_of_no_lock_is_refused() {
    let text = "machine = \"m\"\nsource = \"\"\nunit = \"\"\nsection_cycles = 1\nthreads = [1]\n\
                [measured]\nmutex = [1]\n";
    let refused = super::Curves::parse("x.toml", text).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("x.toml: unknown lock mutex")
    );
}

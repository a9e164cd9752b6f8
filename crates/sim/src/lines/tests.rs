//! What single accesses cost, in picoseconds.

use super::{Ask, Lines};
use crate::machine_file::MachineFile;
use crate::model::Model;
use crate::rng::Rng;
use minflt_sync::{Cost, Kind};

const DIE: u64 = 200_000;
const FAR1: u64 = 450_000;
const FAR2: u64 = 600_000;
const HIT: u64 = 700;

fn machine(name: &str, cpus: u32) -> (Model, Lines) {
    let model = Model::new(&MachineFile::shipped(name).unwrap(), cpus);
    (model, Lines::new(1024, cpus))
}

fn ask(cpu: u32, kind: Kind) -> Ask {
    Ask {
        id: 7,
        node: 0,
        cpu,
        kind,
        waited: false,
    }
}

#[test]
fn a_load_of_an_owned_line_downgrades_it() {
    for cpus in [32, 100] {
        let (model, mut lines) = machine("altix32", cpus);
        let mut at = |cpu, kind, now| lines.access(&model, ask(cpu, kind), now).end - now;
        assert_eq!(at(0, Kind::Store, 0), 140_000 + HIT);
        assert_eq!(at(0, Kind::Store, 1_000_000), HIT);
        assert_eq!(at(1, Kind::Load, 2_000_000), DIE + HIT);
        assert_eq!(at(0, Kind::Load, 3_000_000), HIT, "still shared");
        assert_eq!(at(31, Kind::Load, 4_000_000), FAR2 + HIT);
        assert_eq!(
            at(30, Kind::Load, 5_000_000),
            DIE + HIT,
            "from the neighbour"
        );
        // Three others are told, the farthest beyond the group.
        assert_eq!(at(0, Kind::Rmw, 6_000_000), FAR2 + 2 * 10_000 + 13_000);
        assert_eq!(at(0, Kind::Rmw, 7_000_000), 13_000);
        assert_eq!(at(2, Kind::Store, 8_000_000), FAR1 + HIT);
    }
}

#[test]
fn requesters_of_a_moving_line_queue() {
    let (model, mut lines) = machine("altix32", 32);
    let mut end = |cpu, now| lines.access(&model, ask(cpu, Kind::Rmw), now).end;
    let first = end(0, 0);
    assert_eq!(first, 140_000 + 13_000);
    assert_eq!(end(2, 10), 140_000 + FAR1 + 13_000);
    assert_eq!(end(4, 20), 140_000 + 2 * FAR1 + 13_000);
    assert!(lines.must_wait(&model, 7, 6, Kind::Rmw, 30));
    assert!(!lines.must_wait(&model, 7, 6, Kind::Rmw, 2_000_000));
    assert!(!lines.must_wait(&model, 7, 4, Kind::Rmw, 30), "its own");
    assert!(!lines.is_private(7, 0));
    assert!(lines.is_private(8, 0));
}

#[test]
fn the_first_reader_of_a_socket_pays_the_way_and_later_ones_its_last_cache() {
    // Two sockets of ten cores of two threads.
    let (model, mut lines) = machine("ivb-ep40", 40);
    let (llc, far, smt, hit) = (14_600, 110_000, 10_000, 1400);
    let mut at = |cpu, kind, now| lines.access(&model, ask(cpu, kind), now).end - now;
    assert_eq!(at(0, Kind::Store, 0), 92_500 + hit);
    assert_eq!(at(20, Kind::Load, 1_000_000), far + hit, "from its owner");
    assert_eq!(at(22, Kind::Load, 2_000_000), llc + hit);
    assert_eq!(at(2, Kind::Load, 3_000_000), llc + hit);
    assert_eq!(
        at(23, Kind::Load, 4_000_000),
        smt + hit,
        "its sibling has it"
    );
    // Four others are told, the farthest in the other socket.
    assert_eq!(at(0, Kind::Store, 5_000_000), far + 3 * 2000 + hit);
}

#[test]
fn a_line_stays_in_the_core_when_a_sibling_takes_it() {
    let (model, mut lines) = machine("ivb-ep40", 40);
    let mut at = |cpu, kind, now| lines.access(&model, ask(cpu, kind), now).end - now;
    at(0, Kind::Rmw, 0);
    assert_eq!(at(1, Kind::Load, 1_000_000), 10_000 + 1400);
    assert_eq!(at(1, Kind::Rmw, 2_000_000), 8000, "a load took it whole");
    assert_eq!(at(0, Kind::Rmw, 3_000_000), 10_000 + 8000);
    assert_eq!(at(2, Kind::Rmw, 4_000_000), 40_000 + 8000, "from one owner");
}

#[test]
fn a_further_die_keeps_the_home_busy_and_not_for_the_whole_way() {
    let (model, mut lines) = machine("altix32", 32);
    let mut end = |cpu, kind, now| lines.access(&model, ask(cpu, kind), now).end;
    end(0, Kind::Store, 0);
    let shared = end(2, Kind::Load, 1_000_000);
    assert_eq!(shared, 1_000_000 + FAR1 + HIT);
    // The home sends one after the other, 50 ns apart; each is as long on its way as alone.
    assert_eq!(end(4, Kind::Load, 2_000_000), 2_000_000 + FAR1 + HIT);
    assert_eq!(end(6, Kind::Load, 2_000_000), 2_050_000 + FAR1 + HIT);
    assert_eq!(end(8, Kind::Load, 2_000_000), 2_100_000 + FAR1 + HIT);
    // The neighbour of a reader asks that one.
    assert_eq!(end(9, Kind::Load, 2_800_000), 2_800_000 + DIE + HIT);
}

#[test]
fn sharers_are_counted_in_any_range() {
    let (model, mut lines) = machine("next1024", 1024);
    let mut load = |cpu| lines.access(&model, ask(cpu, Kind::Load), 0);
    for cpu in [0, 63, 64, 127, 128, 1023] {
        load(cpu);
    }
    let line = *lines.line(7);
    let count = |from, to| lines.count(&line, from..to);
    assert_eq!(count(0, 1024), 6);
    assert_eq!(count(1, 64), 1);
    assert_eq!(count(63, 129), 4);
    assert_eq!(count(129, 1023), 0);
    assert_eq!(count(1000, 4096), 1, "beyond the machine is nobody");
}

/// Eight sockets of 20 CPUs without a directory; four are within one hop.
#[test]
fn a_broadcast_collects_all_sockets_and_ends_at_the_home() {
    let (model, mut lines) = machine("wsm-ex8", 160);
    let (far1, far2, die, rmw) = (160_000, 215_000, 54_000, 10_000);
    let mut at = |cpu, kind, now, waited| {
        let ask = Ask {
            waited,
            ..ask(cpu, kind)
        };
        let end = lines.access(&model, ask, now).end - now;
        (end, lines.line(7).busy - now)
    };
    at(0, Kind::Rmw, 0, false);
    // Within the die nobody else is asked.
    assert_eq!(at(2, Kind::Rmw, 1_000_000, false), (die + rmw, die));
    // The home must hear that the data has come, and says that it is over.
    let over = far1 + far1 / 2 + far1 / 2;
    assert_eq!(at(20, Kind::Rmw, 2_000_000, false), (far1 + rmw, over));
    // Where the home is here, it waits for the answers of the farthest sockets, who have nothing.
    let over = far2 / 2 + far2 / 2 + die / 2;
    assert_eq!(at(0, Kind::Rmw, 3_000_000, false), (far1 + rmw, over));
    // One that waited is told by the one before; then the way to the home and back.
    let (near, turn) = (far1 / 2 + rmw, far1 / 2 + far1);
    assert_eq!(at(40, Kind::Rmw, 4_000_000, true), (near, turn));
    // Where the home is far, so is each turn; where it is here, a turn is short.
    let (way, turn) = (far2 / 2 + rmw, far2 / 2 + far2);
    assert_eq!(at(140, Kind::Rmw, 5_000_000, true), (way, turn));
    assert_eq!(at(0, Kind::Rmw, 6_000_000, true), (way, far2 / 2 + die));
    // Of a shared line, only the home knows when nobody else has it.
    at(20, Kind::Load, 7_000_000, false);
    let over = far1 + far1 / 2 + far1 / 2;
    assert_eq!(at(20, Kind::Rmw, 8_000_000, false), (over + rmw, over));
}

#[test]
fn of_new_lines_stores_overlap_and_loads_and_exchanges_do_not() {
    let mut file = MachineFile::shipped("kvm16").unwrap();
    file.shape.overlap.value = 10.0;
    let (model, mut lines) = (Model::new(&file, 16), Lines::new(1024, 16));
    let mut first = |id, kind| {
        let ask = Ask { id, ..ask(0, kind) };
        lines.access(&model, ask, 0).end
    };
    let (memory, hit) = (model.dram_local, model.hit);
    assert_eq!(first(0, Kind::Store), memory / 10 + hit);
    assert_eq!(first(1, Kind::PlainWrite), memory / 10 + hit);
    assert_eq!(first(2, Kind::Load), memory + hit);
    assert_eq!(first(3, Kind::Rmw), memory + model.rmw_hit);
    let fixed = |cost| model.fixed(cost, 0);
    assert_eq!(fixed(Cost::Fresh), fixed(Cost::Cold) / 10);
}

#[test]
fn a_look_is_a_load_that_waited() {
    for (name, cpus) in [
        ("altix512", 512),
        ("next1024", 40),
        ("kvm16", 16),
        ("wsm-ex8", 160),
    ] {
        let (model, mut lines) = machine(name, cpus);
        let (_, mut others) = machine(name, cpus);
        let (mut random, mut now) = (Rng::new(1), 0);
        for _ in 0..20_000 {
            let cpu = random.below(u64::from(cpus)) as u32;
            now += random.below(60_000);
            let load = Ask {
                waited: true,
                ..ask(cpu, Kind::Load)
            };
            let (left, right) = if random.below(20) == 0 {
                let store = ask(cpu, Kind::Store);
                (
                    lines.access(&model, store, now),
                    others.access(&model, store, now),
                )
            } else {
                let die_has = lines.die_shares(&model, 7, cpu);
                (
                    lines.look(&model, 7, cpu, die_has, now),
                    others.access(&model, load, now),
                )
            };
            assert_eq!((left.end, left.came), (right.end, right.came));
            let (line, other) = (*lines.line(7), *others.line(7));
            assert_eq!(format!("{line:?}"), format!("{other:?}"));
            assert_eq!(lines.words_of(&line), others.words_of(&other));
        }
    }
}

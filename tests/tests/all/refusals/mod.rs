//! Memory that runs out at every allocation of every call, one at a time and for good.
//!
//! A scene sets an address space up and does one thing to it. It is done once with memory enough,
//! which tells what success looks like, and then once for each allocation it makes, which fails.
//! Then the scene either says that there is no memory, and everything is as before it; or it says
//! that it succeeded, and everything is as it should be. The ledger balances in any case, and the
//! scene succeeds when done again with memory.

mod files;
mod huge;
mod others;
mod scenes;
mod sites;

use minflt_addr::VirtAddr;
use minflt_mm::config::{AddressSpace, CpuMasks};
use minflt_mm::{
    Config, FileHandle, Mm, MmHandle, Overcommit, Prot, Refuse, Running, Signal, Swap, System,
    Thread, era, eras_of_huge_pages, eras_without_migration,
};
use minflt_report::replace_generated;
use minflt_tests::disk::Disk;
use minflt_tests::world::{Machine, PAGE, boot_on, machine};
use scenes::{Failing, SCENES, Scene};
use sites::Sites;
use std::fs;
use std::path::Path;

/// Two tables meet in the middle of the window.
const BASE: u64 = (1 << 30) - PAGES / 2 * PAGE;
const PAGES: u64 = 32;
/// No call of a scene makes more allocations.
const MANY: u64 = 400;

fn page(number: u64) -> VirtAddr {
    VirtAddr(BASE + number * PAGE)
}

/// What a scene may use.
struct World<'w> {
    sys: &'w System<Machine>,
    mm: &'w MmHandle<'w, Machine>,
    thread: &'w Thread<'w, Machine>,
    /// 16 pages in memory, of which every other one is there.
    file: &'w FileHandle<'w, Machine>,
    /// 16 pages on a disk.
    disk: &'w FileHandle<'w, Machine>,
}

/// What an address space is: its mappings, and the first word of each page of the window.
type Seen = (Vec<String>, Vec<Result<u64, Signal>>);

fn seen(mm: &Mm<Machine>, thread: &Thread<'_, Machine>) -> Seen {
    let mut mappings = Vec::new();
    mm.for_each_mapping(|range, prot: Prot| mappings.push(format!("{range} {prot}")));
    let words = (0..PAGES).map(|number| thread.load(page(number)));
    (mappings, words.collect())
}

/// What came of one run of a scene.
struct Came {
    /// Where the first allocation failed.
    site: Option<String>,
    done: Result<(), String>,
    before_again: Seen,
    after_again: Seen,
}

fn boot(config: Config, ram_bytes: usize) -> Running<Machine> {
    let machine = machine(2, ram_bytes);
    // The scenes run on the first node.
    let machine = machine.with_nodes(2);
    let swap = Swap::Memory { pages: 64 };
    let sys = boot_on::<Machine>(machine, config, swap);
    sys.set_overcommit(Overcommit::Always);
    sys
}

fn files(sys: &System<Machine>) -> (FileHandle<'_, Machine>, FileHandle<'_, Machine>) {
    let file = sys.new_file(16 * PAGE).expect("memory");
    for number in (0..16).step_by(2) {
        let written = file.write_word(number * PAGE, 100 + number);
        written.expect("memory");
    }
    let disk = Disk::new(16 * PAGE, &[(0, 100), (PAGE, 101)]);
    let disk = sys.open_file(disk, 16 * PAGE).expect("memory");
    (file, disk)
}

/// Does the scene once, with allocations refused as said; then once more, without.
fn run(config: Config, scene: &Scene, refuse: Refuse) -> Came {
    let sys = boot(config, scene.ram);
    let entered = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let thread = mm.thread();
    let (file, disk) = files(&sys);
    let world = World {
        sys: &sys,
        mm: &mm,
        thread: &thread,
        file: &file,
        disk: &disk,
    };
    (scene.set_up)(&world);
    sys.refuse_allocations(refuse);
    let done = (scene.act)(&world).map_err(|error| format!("{error}"));
    sys.refuse_allocations(Refuse::Nothing);
    let site = sys.refused_allocation().map(|site| format!("{site}"));
    let before_again = seen(&mm, &thread);
    let after_again = match done {
        Ok(()) => before_again.clone(),
        Err(_) => {
            (scene.act)(&world).expect("there is memory now");
            seen(&mm, &thread)
        }
    };
    drop(thread);
    drop((file, disk));
    drop(mm);
    let balanced = sys.check_ledger(&[]);
    balanced.expect("nothing is leaked");
    drop(entered);
    assert_eq!(sys.machine().failed(), None);
    Came {
        site,
        done,
        before_again,
        after_again,
    }
}

/// The address space before the scene did anything.
fn untouched(config: Config, scene: &Scene) -> Seen {
    let nothing = Scene {
        act: |_| Ok(()),
        ..*scene
    };
    run(config, &nothing, Refuse::Nothing).before_again
}

fn try_all(era: &str, config: Config, scene: &Scene, sites: &mut Sites) {
    let before = untouched(config, scene);
    let fine = run(config, scene, Refuse::Nothing);
    let name = scene.name;
    assert_eq!(fine.done, Ok(()), "{name}, {era}");
    for refuse in [Refuse::Nth as fn(u64) -> Refuse, Refuse::From] {
        for n in 1..MANY {
            let what = refuse(n);
            let came = run(config, scene, what);
            let Some(site) = came.site else { break };
            sites.hit(&site);
            let said = format!("{name}, {era}, {what:?} at {site}: {:?}", came.done);
            if came.done.is_ok() {
                assert_eq!(came.before_again, fine.before_again, "{said}");
            } else if scene.failing == Failing::Whole {
                assert_eq!(came.before_again, before, "{said}");
            }
            assert_eq!(came.after_again, fine.after_again, "{said}, and again");
            assert!(n + 1 < MANY, "{name} allocates for ever");
        }
    }
}

#[test]
fn every_allocation_fails_once_and_nothing_is_lost() {
    let mut sites = Sites::of_the_source();
    for era in eras_without_migration() {
        for scene in SCENES.iter().chain(others::SCENES).chain(files::SCENES) {
            try_all(era.name, era.config, scene, &mut sites);
        }
    }
    // In arenas so small that ranges have borders.
    let in_arenas = Config {
        address_space: AddressSpace::ArenasSmall,
        cpu_masks: CpuMasks::Arenas,
        ..era("spf-2017").expect("an era").config
    };
    for scene in SCENES.iter().chain(others::SCENES).chain(files::SCENES) {
        try_all("spf-2017 in arenas", in_arenas, scene, &mut sites);
    }
    // Where pages follow their users, without the lock of an anon_vma.
    let balancing = era("anon-vma-2012").expect("an era").config;
    for scene in others::SCENES.iter().chain([&others::FOLLOW]) {
        try_all("anon-vma-2012", balancing, scene, &mut sites);
    }
    for era in eras_of_huge_pages() {
        for scene in huge::SCENES {
            try_all(era.name, era.config, scene, &mut sites);
        }
    }
    let missed = sites.missed();
    assert!(missed.is_empty(), "no scene fails at {missed:#?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/refusals.md");
    let text = fs::read_to_string(&page).expect("a page of docs");
    let new = replace_generated(&text, "refusals", &sites.to_string()).expect("its markers");
    if std::env::var_os("MINFLT_DOCS").is_some() {
        fs::write(&page, &new).expect("ours");
    } else {
        let again = "MINFLT_DOCS=1 cargo test -p minflt-tests --test all refusals";
        assert!(
            text == new,
            "docs/refusals.md is not what the test saw: {again}"
        );
    }
}

//! The floors of `mm`: rooms, and the arrows between them, which point down.
//!
//! An arrow is a path (`crate::...`) or a call of a method of `System`, `Mm`, `Tables`, `Held` or
//! `Thread` that one room defines. Only methods are seen whose name says which they are: that no
//! other function of the library has.

use super::Finding;
use super::rust_source::{RustSource, is_ident, word_positions};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const SOURCE: &str = "crates/mm/src/";

/// From the ground up. A file may use what lies on the floors below its own.
const FLOORS: [(&str, Rooms); 9] = [
    ("base", Rooms::Each),
    ("memory", Rooms::Each),
    ("entry", Rooms::Each),
    ("space", Rooms::Each),
    ("pages", Rooms::Each),
    ("change", Rooms::One),
    ("fault", Rooms::One),
    ("call", Rooms::One),
    ("view", Rooms::Each),
];

/// What a floor is divided into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rooms {
    /// Nothing: its files use each other.
    One,
    /// Each file and folder on it is a room.
    Each,
}

/// Which rooms use which others of their floor.
const BESIDE: &[(&str, &[&str])] = &[
    (
        "base/attrs",
        &["base/file", "base/huge_size", "base/policy"],
    ),
    ("base/controls", &["base/config", "base/error"]),
    ("base/config", &["base/vma_lock_ops"]),
    ("base/error", &["base/config", "base/file", "base/policy"]),
    ("base/why", &["base/event"]),
    ("memory/alloc", &["memory/frame", "memory/swap"]),
    ("memory/commit", &["memory/percpu_counter"]),
    ("memory/rss", &["memory/percpu_counter"]),
    ("memory/sizes", &["memory/arenas", "memory/commit"]),
    ("memory/slab", &["memory/frame", "memory/lifetime"]),
    ("memory/swap", &["memory/frame"]),
    ("entry/free", &["entry/table", "entry/walk", "entry/zap"]),
    ("entry/linked", &["entry/shootdown", "entry/walk"]),
    ("entry/shootdown", &["entry/mailbox", "entry/part"]),
    ("entry/slot", &["entry/shootdown", "entry/table"]),
    ("entry/translation", &["entry/part", "entry/walk"]),
    ("entry/walk", &["entry/shootdown", "entry/table"]),
    (
        "entry/zap",
        &[
            "entry/allowed",
            "entry/part",
            "entry/shootdown",
            "entry/table",
            "entry/walk",
        ],
    ),
    ("space/arenas", &["space/tree", "space/vma"]),
    ("space/own_lock", &["space/vma"]),
    ("space/retire", &["space/vma"]),
    ("space/tree", &["space/vma"]),
    (
        "space/vma_lock",
        &["space/arenas", "space/own_lock", "space/vma"],
    ),
    (
        "pages/file",
        &["pages/interval", "pages/page", "pages/reserved"],
    ),
    (
        "pages/hugetlb",
        &[
            "pages/file",
            "pages/interval",
            "pages/page",
            "pages/reserved",
        ],
    ),
    (
        "pages/migrate",
        &["pages/file", "pages/hugetlb", "pages/page", "pages/rmap"],
    ),
    (
        "pages/reclaim",
        &["pages/file", "pages/page", "pages/rmap", "pages/swap_out"],
    ),
    (
        "pages/rmap",
        &["pages/file", "pages/interval", "pages/page"],
    ),
    ("pages/segments", &["pages/file", "pages/hugetlb"]),
    ("pages/swap_out", &["pages/page", "pages/rmap"]),
];

/// What stands beside the floors, and why.
const BESIDE_THE_FLOORS: [(&str, Why); 5] = [
    // The records that everything is handed. A field belongs to one floor, which gives its type.
    ("system.rs", Why::Spine),
    ("mm.rs", Why::Spine),
    ("arenas.rs", Why::Spine),
    // Puts all parts of a system together.
    ("boot.rs", Why::Roof),
    // Says what others see.
    ("lib.rs", Why::Roof),
];

/// How a file that is on no floor stands to those that are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// Every floor may use it, and it names types of every floor: no functions.
    Spine,
    /// It may use every floor, and none uses it.
    Roof,
}

/// Types whose methods are defined on all floors.
const SPREAD: [&str; 6] = ["System<", "Mm<", "Arenas<", "Tables<", "Held<", "Thread<"];
/// Names of such methods that others have, too.
const COMMON: [&str; 1] = ["map"];

/// What is used, where: of the library's files, by the paths below [`SOURCE`].
#[derive(Debug)]
struct Arrow {
    from: String,
    line: usize,
    to: String,
    what: String,
}

/// What there is, for who asks.
#[derive(Debug)]
pub(super) struct Count {
    floors: usize,
    rooms: usize,
    down: usize,
    beside: usize,
}

impl core::fmt::Display for Count {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names: Vec<&str> = FLOORS.iter().map(|(name, _)| *name).collect();
        write!(
            f,
            "{} floors ({}), {} rooms; arrows between them: {} down, {} beside, none up, no circle",
            self.floors,
            names.join(" < "),
            self.rooms,
            self.down,
            self.beside
        )
    }
}

/// Arrows point down, or to a room beside that the table names; the table has no circle.
pub(super) fn arrows_point_down(tree: &Tree) -> Vec<Finding> {
    let mut findings = circles();
    for arrow in arrows(tree) {
        let Some(message) = wrong(&arrow) else {
            continue;
        };
        let path = format!("{SOURCE}{}", arrow.from);
        findings.push(Finding::new(&path, arrow.line, message));
    }
    for source in files(tree) {
        let path = &source.path[SOURCE.len()..];
        if floor(path).is_none() && beside_the_floors(path).is_none() {
            let message = "on no floor of xtask/src/tidy/floors.rs";
            findings.push(Finding::new(&source.path, 1, message));
        }
    }
    findings
}

/// How many floors, rooms and arrows there are.
pub(super) fn count(tree: &Tree) -> Count {
    let rooms: BTreeSet<String> = files(tree)
        .filter_map(|source| room(&source.path[SOURCE.len()..]))
        .collect();
    let pairs: BTreeSet<(String, String)> = arrows(tree)
        .into_iter()
        .filter_map(|arrow| Some((room(&arrow.from)?, room(&arrow.to)?)))
        .filter(|(from, to)| from != to)
        .collect();
    let beside = |pair: &&(String, String)| floor(&pair.0) == floor(&pair.1);
    let beside = pairs.iter().filter(beside).count();
    Count {
        floors: FLOORS.len(),
        rooms: rooms.len(),
        down: pairs.len() - beside,
        beside,
    }
}

/// What is wrong with an arrow, if anything.
fn wrong(arrow: &Arrow) -> Option<String> {
    let (from, to, what) = (&arrow.from, &arrow.to, &arrow.what);
    match (beside_the_floors(from), beside_the_floors(to)) {
        (Some(Why::Roof), _) | (_, Some(Why::Spine)) => return None,
        (_, Some(Why::Roof)) => return Some(format!("`{what}` is of the roof, `{to}`")),
        (Some(Why::Spine), None) => {
            let is_type = what.starts_with(char::is_uppercase);
            let message = || format!("`{what}` of `{to}`: the spine names types only");
            return (!is_type).then(message);
        }
        (None, None) => {}
    }
    let (here, there) = (floor(from)?, floor(to)?);
    if here > there || room(from) == room(to) {
        return None;
    }
    let (here, there) = (room(from)?, room(to)?);
    let listed = BESIDE
        .iter()
        .any(|(room, others)| *room == here && others.contains(&there.as_str()));
    let message = || format!("`{here}` must not use `{what}` of `{there}`");
    (!listed).then(message)
}

/// Circles in the table of rooms beside each other, and arrows in it between floors.
fn circles() -> Vec<Finding> {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut left: Vec<_> = BESIDE.to_vec();
    loop {
        let before = left.len();
        left.retain(|(room, others)| {
            let waits = |other: &&str| {
                !done.contains(*other) && BESIDE.iter().any(|(room, _)| *room == *other)
            };
            let stays = others.iter().any(waits);
            if !stays {
                done.insert(room);
            }
            stays
        });
        if left.len() == before {
            break;
        }
    }
    left.iter()
        .map(|(room, _)| {
            let message = format!("`{room}` is in a circle of rooms");
            Finding::new("xtask/src/tidy/floors.rs", 1, message)
        })
        .collect()
}

/// What the table permits and nobody does, of rooms that there are.
pub(super) fn permissions_are_used(tree: &Tree) -> Vec<Finding> {
    let used: BTreeSet<(String, String)> = arrows(tree)
        .into_iter()
        .filter_map(|arrow| Some((room(&arrow.from)?, room(&arrow.to)?)))
        .collect();
    let rooms: BTreeSet<&String> = used.iter().map(|(from, _)| from).collect();
    let permitted = BESIDE.iter().flat_map(|(room, others)| {
        let others = others.iter();
        others.map(|other| ((*room).to_owned(), (*other).to_owned()))
    });
    permitted
        .filter(|pair| rooms.contains(&pair.0) && !used.contains(pair))
        .map(|(from, to)| {
            let message = format!("`{from}` may use `{to}`, and does not");
            Finding::new("xtask/src/tidy/floors.rs", 1, message)
        })
        .collect()
}

fn beside_the_floors(path: &str) -> Option<Why> {
    let found = BESIDE_THE_FLOORS.iter().find(|(file, _)| *file == path);
    found.map(|(_, why)| *why)
}

/// Which floor a file or a room is on.
fn floor(path: &str) -> Option<usize> {
    let first = path.split('/').next()?;
    FLOORS.iter().position(|(name, _)| *name == first)
}

/// The room that a file is in.
fn room(path: &str) -> Option<String> {
    let (name, rooms) = FLOORS[floor(path)?];
    let below = path[name.len()..].trim_start_matches('/');
    let second = below.split('/').next()?.trim_end_matches(".rs");
    match rooms {
        Rooms::Each if second != "mod" && !second.is_empty() => Some(format!("{name}/{second}")),
        _ => Some(name.to_owned()),
    }
}

fn files(tree: &Tree) -> impl Iterator<Item = &RustSource> {
    tree.rust.iter().filter(|it| it.path.starts_with(SOURCE))
}

/// All arrows between files.
fn arrows(tree: &Tree) -> Vec<Arrow> {
    let modules: BTreeMap<String, String> = files(tree)
        .map(|source| {
            let path = &source.path[SOURCE.len()..];
            (module(path), path.to_owned())
        })
        .collect();
    let methods = methods(tree);
    let mut arrows = Vec::new();
    for source in files(tree) {
        let from = &source.path[SOURCE.len()..];
        let mut add = |line: usize, to: &str, what: &str| {
            if to != from {
                arrows.push(Arrow {
                    from: from.to_owned(),
                    line,
                    to: to.to_owned(),
                    what: what.to_owned(),
                });
            }
        };
        for (line, path) in paths(source) {
            if let Some(to) = file_of(&path, &modules) {
                add(line, to, path.rsplit("::").next().unwrap_or(&path));
            }
        }
        for (at, line) in source.production().iter().enumerate() {
            for name in called(line) {
                if let Some(to) = methods.get(name) {
                    add(at + 1, to, name);
                }
            }
        }
    }
    arrows
}

/// The module that a file is.
fn module(path: &str) -> String {
    let path = path.trim_end_matches(".rs");
    path.strip_suffix("/mod").unwrap_or(path).replace('/', "::")
}

/// The file that a path leads into: the longest module that it begins with.
fn file_of<'m>(path: &str, modules: &'m BTreeMap<String, String>) -> Option<&'m str> {
    let mut path = path;
    loop {
        if let Some(file) = modules.get(path) {
            return Some(file);
        }
        path = path.rsplit_once("::")?.0;
    }
}

/// Paths from the root of the library, with their lines; those in braces one by one.
fn paths(source: &RustSource) -> Vec<(usize, String)> {
    let text = source.production().join("\n");
    let module = module(&source.path[SOURCE.len()..]);
    let mut found = Vec::new();
    for word in ["crate", "super"] {
        for at in word_positions(&text, word) {
            let before = text[..at].trim_end();
            let rest = &text[at + word.len()..];
            if !rest.starts_with("::") || before.ends_with("::") || before.ends_with("in") {
                continue;
            }
            let line = text[..at].matches('\n').count() + 1;
            let mut base = String::new();
            let mut rest = &rest[2..];
            if word == "super" {
                let mut parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
                while let Some(further) = rest.strip_prefix("super::") {
                    parent = parent.rsplit_once("::").map_or("", |(parent, _)| parent);
                    rest = further;
                }
                base = parent.to_owned();
            }
            let mut expanded = Vec::new();
            expand(rest, &base, &mut expanded);
            found.extend(expanded.into_iter().map(|path| (line, path)));
        }
    }
    found
}

/// The paths that the text begins with, behind `base`; returns what is left of it.
fn expand<'t>(text: &'t str, base: &str, found: &mut Vec<String>) -> &'t str {
    let mut path = base.to_owned();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let end = rest.find(|c| !is_ident(c)).unwrap_or(rest.len());
        if end > 0 {
            if !path.is_empty() {
                path.push_str("::");
            }
            path.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        if let Some(further) = rest.strip_prefix("::") {
            rest = further;
            continue;
        }
        if let Some(further) = rest.strip_prefix('{') {
            rest = further.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                rest = expand(rest, &path, found);
                // What a name is called here does not matter.
                let next = rest.find([',', '}']).unwrap_or(rest.len());
                rest = rest[next..].trim_start_matches(',').trim_start();
            }
            return rest.strip_prefix('}').unwrap_or(rest);
        }
        found.push(path);
        return rest;
    }
}

/// Methods of the types that are spread over the floors, and the file of each; those only whose
/// name no other function has.
fn methods(tree: &Tree) -> BTreeMap<String, String> {
    let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
    let libraries = [
        "crates/mm/",
        "crates/pgtable/",
        "crates/sync/",
        "crates/addr/",
    ];
    let ours = |source: &&RustSource| libraries.iter().any(|it| source.path.starts_with(it));
    for source in tree.rust.iter().filter(ours) {
        for name in source.production().iter().filter_map(|line| function(line)) {
            *defined.entry(name).or_default() += 1;
        }
    }
    let mut methods = BTreeMap::new();
    for source in files(tree) {
        let mut within = false;
        for line in source.production() {
            if line.starts_with("impl") {
                let of = line.split_once("> ").map_or("", |(_, of)| of);
                within = SPREAD.iter().any(|name| of.starts_with(name)) && !line.contains(" for ");
            } else if line.starts_with('}') {
                within = false;
            } else if within && let Some(name) = function(line) {
                let path = &source.path[SOURCE.len()..];
                if defined.get(name) == Some(&1) && !COMMON.contains(&name) {
                    methods.insert(name.to_owned(), path.to_owned());
                }
            }
        }
    }
    methods
}

/// The function that a line begins to define.
fn function(line: &str) -> Option<&str> {
    let at = word_positions(line, "fn").next()?;
    let name = line[at + 2..].trim_start();
    let end = name.find(|c| !is_ident(c)).unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

/// The names behind a dot or a path that a bracket follows.
fn called(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices('(').filter_map(|(at, _)| {
        let before = &line[..at];
        let start = before.rfind(|c| !is_ident(c)).map_or(0, |at| at + 1);
        let name = &before[start..];
        let behind = before[..start].ends_with('.') || before[..start].ends_with("::");
        (behind && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::{arrows_point_down, count, expand, permissions_are_used};
    use crate::tidy::tree::Tree;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let findings = arrows_point_down(&Tree::sample(files));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_up_is_found() {
        let up = found(&[
            (
                "crates/mm/src/memory/frame.rs",
                "use crate::fault::{anon, Why};\n",
            ),
            ("crates/mm/src/fault/mod.rs", ""),
            ("crates/mm/src/fault/anon.rs", "use crate::memory::frame;\n"),
        ]);
        let at = "crates/mm/src/memory/frame.rs:1: `memory/frame` must not use";
        assert_eq!(
            up,
            [
                format!("{at} `anon` of `fault`"),
                format!("{at} `Why` of `fault`")
            ]
        );
    }

    #[test]
    fn a_call_up_is_found() {
        let up = found(&[
            (
                "crates/mm/src/entry/zap.rs",
                "fn a(mm: &Mm) {\n    mm.expand_stack(at);\n}\n",
            ),
            (
                "crates/mm/src/fault/stack.rs",
                "impl<M: Mmu> Mm<M> {\n    fn expand_stack(&self) {}\n}\n",
            ),
        ]);
        let message = "`entry/zap` must not use `expand_stack` of `fault`";
        assert_eq!(up, [format!("crates/mm/src/entry/zap.rs:2: {message}")]);
    }

    #[test]
    fn a_room_beside_is_listed_or_found() {
        let up = found(&[
            (
                "crates/mm/src/pages/file/mod.rs",
                "use super::rmap::Owner;\n",
            ),
            (
                "crates/mm/src/pages/rmap/mod.rs",
                "use crate::pages::file::PageCache;\n",
            ),
        ]);
        let message = "`pages/file` must not use `Owner` of `pages/rmap`";
        assert_eq!(
            up,
            [format!("crates/mm/src/pages/file/mod.rs:1: {message}")]
        );
    }

    #[test]
    fn a_permission_that_nobody_needs_is_found() {
        let tree = Tree::sample(&[
            (
                "crates/mm/src/entry/slot.rs",
                "use crate::entry::table::exchange;\n",
            ),
            ("crates/mm/src/entry/table.rs", ""),
        ]);
        let findings = permissions_are_used(&tree);
        let unused: Vec<&str> = findings.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(
            unused,
            ["`entry/slot` may use `entry/shootdown`, and does not"]
        );
    }

    #[test]
    fn the_spine_names_types_only() {
        let up = found(&[
            (
                "crates/mm/src/mm.rs",
                "use crate::call::brk::{Heap, unmap_all};\n",
            ),
            ("crates/mm/src/call/brk.rs", ""),
        ]);
        let message = "`unmap_all` of `call/brk.rs`: the spine names types only";
        assert_eq!(up, [format!("crates/mm/src/mm.rs:1: {message}")]);
    }

    #[test]
    fn a_file_on_no_floor_is_found() {
        let up = found(&[("crates/mm/src/attic.rs", "")]);
        let message = "on no floor of xtask/src/tidy/floors.rs";
        assert_eq!(up, [format!("crates/mm/src/attic.rs:1: {message}")]);
    }

    #[test]
    fn braces_are_expanded() {
        let mut found = Vec::new();
        let rest = expand("a::{b, c::{D as E, f}, self}; g", "", &mut found);
        assert_eq!(found, ["a::b", "a::c::D", "a::c::f", "a::self"]);
        assert_eq!(rest, "; g");
    }

    #[test]
    fn rooms_and_arrows_are_counted() {
        let tree = Tree::sample(&[
            (
                "crates/mm/src/pages/file/mod.rs",
                "use crate::pages::page::Page;\n",
            ),
            (
                "crates/mm/src/pages/page.rs",
                "use crate::memory::frame::Frame;\n",
            ),
            ("crates/mm/src/memory/frame.rs", ""),
        ]);
        let counted = count(&tree).to_string();
        assert!(
            counted.ends_with("3 rooms; arrows between them: 1 down, 1 beside, none up, no circle")
        );
    }
}
